"""The plan of a run: which cases go to which runners in which variants, with every default settled; pure functions."""

from whet.plan.describing import describe_plan
from whet.plan.making import make_plan, mount_problems, skill_problems, template_problems
from whet.plan.request import RunRequest, Selection, parse_shard, split_list

__all__ = [
    "RunRequest",
    "Selection",
    "describe_plan",
    "make_plan",
    "mount_problems",
    "parse_shard",
    "skill_problems",
    "split_list",
    "template_problems",
]
