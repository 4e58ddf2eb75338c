"""`python bench/schemas.py`: write the JSON Schemas of results.json and of settings from the code.

`--check` only compares. If you add a field of results, add a sentence about it to `FIELDS`, and for a setting to its
reference page; the script says what is missing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import settings_schema

from whet.errors import Cause, Phase
from whet.model.session import TOKEN_FIGURES
from whet.record.document import WrittenRun

FILE = Path(__file__).resolve().parents[1] / "src/whet/record/results.schema.json"
HEAD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:whet:results:2",
    "title": "whet results",
    "description": "The result of one run, as written to results.json of its run folder and by the json reporter. "
    "All paths but suite_path and location.file are relative to the run folder.",
    "$ref": "#/$defs/run",
}
# The names of definitions whose class is called something else.
NAMES = {"RoundAnalysis": "look", "SnapshotOutcome": "snapshot", "SkillDetection": "detected_skill"}
# Fields that earlier versions of whet did not write. All others are always there.
LATER = {
    "rate": {"errored", "if_errored_failed", "if_errored_passed", "first_passed", "first_total", "flaky"},
    "snapshot": {"key"},
    "lift": {"triggered", "asked"},
    "record": {"workspaces"},
}
NOT_NEGATIVE, FROM_ONE, POSITIVE = {"minimum": 0}, {"minimum": 1}, {"exclusiveMinimum": 0}
SHARE, DIFFERENCE = {"minimum": 0, "maximum": 1}, {"minimum": -1, "maximum": 1}
MOMENT, SHA256 = {"format": "date-time"}, {"pattern": "^[0-9a-f]{64}$"}
# What a field means, and what its value keeps to, besides its type.
FIELDS: dict[str, dict[str, str | tuple[str, Mapping[str, Any]]]] = {
    "run": {
        "schema": "The name and version of this format.",
        "run_id": "The name of the run folder; sorts by time.",
        "suite": "The name of the suite: its file name without the ending.",
        "suite_path": "The absolute path of the suite file.",
        "whet_version": "The version of whet that wrote this document.",
        "sandbox": "The boundary that agents ran inside, such as bubblewrap or local.",
        "started_at": ("When the run, or its last resumption, began: ISO 8601, in UTC.", MOMENT),
        "ended_at": ("When it ended.", MOMENT),
        "duration_s": ("Wall-clock seconds of the run, or of its last resumption.", NOT_NEGATIVE),
        "interrupted": "Whether a signal ended the run before all trials had ended.",
        "schedule": "What was allowed to run at the same time.",
        "max_parallel": ("The most trials at a time.", FROM_ONE),
        "arms": "The versions that the run compares, or one that is called default.",
        "baseline": "The arm that the others are compared with; null if there is one arm.",
        "compares": "Whether somebody defined its arms, so that a gate decides and not how its trials went.",
        "seed": "What the order of each round was drawn from; null if trials ran in declared order.",
        "grown_from": "The rounds that were done each time the run was made longer.",
        "until": "What a run until decided was asked: the effect that matters, the most rounds, and its margin.",
        "stopped": "Why a run until decided ended; null if it has not, and for other runs.",
        "voided": "The cases that count nowhere, each with the controls that pass it.",
        "judge_error": ("How many of a hundred verdicts the judge has wrong, as the settings said.", NOT_NEGATIVE),
        "warnings": "What readers must know: a judge that is the agent on trial (judge-self) or of its family.",
        "passed": "Whether every planned trial ended as expected.",
        "counts": "How many trials ended with each status.",
        "check_mistakes": ("How many of them failed by a mistake in a check, and not by the agent.", NOT_NEGATIVE),
        "total_usage": "What every attempt at every trial took together; unknown figures are left out of the sum.",
        "interrupted_usage": "The part of total_usage of interrupted attempts, which have no result.",
        "unpaid_usage": "The part of total_usage that no provider was asked for, because a cassette answered.",
        "user_usage": "What the models that played users of conversations took, which total_usage leaves out.",
        "spending": "What was paid for, by who asked for it; what a cassette or a cache answered is not in it.",
        "skill_loads": "How often the skill of each arm was loaded, on each runner; nothing for arms without one.",
        "triggers": "How well the skill of each arm was loaded, on each runner, where cases say whether it should be.",
        "scores": "The score of each runner in each arm.",
        "lift": "What the skill adds, for each runner that ran cases with and without it.",
        "comparisons": "Each arm compared with the baseline, on each runner that both have.",
        "pairwise": "What a judge said of pairs of answers: of two arms, or of an arm and stored answers.",
        "looks": "What a run until decided saw after each round.",
        "cases": "The selected cases, in declared order.",
        "record": "What the results were made of, so that a change shows.",
    },
    "spending": {
        "cost_usd": "Dollars of all of them together, as far as they are known.",
        "unknown": ("How many costs are not known.", NOT_NEGATIVE),
        "agents": "The agents of trials that ended; of whet eval, the skills.",
        "judge": "The judge of their checks.",
        "users": "The models that played users of conversations.",
        "interrupted": "Attempts that were interrupted, with all who spent for them.",
        "explain": "Questions that agents were asked about their sessions.",
    },
    "bill": {
        "cost_usd": "Dollars, as far as they are known; null if none of them are.",
        "unknown": ("How many costs are not known, one for each attempt or question.", NOT_NEGATIVE),
        "usage": "What was taken of providers.",
    },
    "early_end": {
        "why": "What was known: the skills were loaded, or it answered or went on without them.",
        "rounds": ("After how many rounds of the model.", NOT_NEGATIVE),
    },
    "trigger_figures": {
        "arm": "Which arm.",
        "runner": "Which runner.",
        "precision": "Of the sessions that loaded the skill, the share that should; null if none did.",
        "recall": "Of the sessions that should load it, the share that did; null if none should.",
        "f1": "The harmonic mean of both; null if no session loaded it, or should.",
        "rightly": ("How many sessions loaded it and should.", NOT_NEGATIVE),
        "wrongly": ("How many loaded it and should not.", NOT_NEGATIVE),
        "missed": ("How many did not load it and should.", NOT_NEGATIVE),
        "left_alone": ("How many did not load it and should not.", NOT_NEGATIVE),
        "unknown": ("How many sessions cannot tell, and count nowhere.", NOT_NEGATIVE),
        "queries": "The same by case.",
    },
    "query_loads": {
        "case": "Which case.",
        "wanted": "Whether it asks to load the skill, or not to.",
        "loaded": ("How many sessions loaded it, of those that tell.", NOT_NEGATIVE),
        "told": ("How many sessions tell what they load.", NOT_NEGATIVE),
        "sessions": ("How many sessions there were.", NOT_NEGATIVE),
        "others": "The other skills that were loaded, each with the number of its sessions.",
    },
    "skill_loads": {
        "arm": "Which arm.",
        "runner": "Which runner.",
        "loaded": ("How many sessions loaded the skill, of those that tell.", NOT_NEGATIVE),
        "told": ("How many sessions tell whether they loaded it.", NOT_NEGATIVE),
        "sessions": ("How many sessions there were.", NOT_NEGATIVE),
        "shown": ("How many sessions show the skill in any way, such as in a list.", NOT_NEGATIVE),
        "unwanted": ("How many of those that tell are of cases that ask not to load it.", NOT_NEGATIVE),
        "loaded_unwanted": ("How many of these loaded it all the same.", NOT_NEGATIVE),
        "listed": ("How many sessions list the skills that the agent offers to its model.", NOT_NEGATIVE),
    },
    "counts": {
        "passed": ("Every check held.", NOT_NEGATIVE),
        "failed": ("A check did not hold, or the agent did not end as it should.", NOT_NEGATIVE),
        "expected_failed": ("An assertion failed in a case that expects it.", NOT_NEGATIVE),
        "unexpected_passed": ("Every check held in a case that is expected to fail.", NOT_NEGATIVE),
        "void": ("Planned for cases that count nowhere.", NOT_NEGATIVE),
        "errored": ("Something happened that the agent did not cause.", NOT_NEGATIVE),
        "not_run": ("Planned, and not ended; only in an interrupted run.", NOT_NEGATIVE),
        "total": ("All planned trials.", NOT_NEGATIVE),
    },
    "run_warning": {
        "code": "Its kind.",
        "message": "What it says.",
        "runner": "The runner that it is about; null if it is about the run.",
    },
    "case": {
        "id": ("The id of the case, unique in its suite.", {"minLength": 1}),
        "tags": "The tags of the case.",
        "weight": ("How much it counts in scores and lift.", POSITIVE),
        "lost_checks": "What a suite of another tool asks of it and whet does not check, with place and reason.",
        "split": "The part of the suite that it is in; null if it was not split.",
        "source": "Where it comes from; null if its author does not say.",
        "edited": "Whether it asks or checks something else than when it was held out.",
        "passed": "Whether every trial of every execution ended as expected.",
        "executions": ("The case on each runner in each arm, in declared order.", {"minItems": 1}),
    },
    "execution": {
        "runner": "The id of the runner.",
        "arm": "The condition that the case ran under; default if there is only one.",
        "agent": "The type of the runner's agent.",
        "model": "The runner's model, if its settings name one.",
        "planned_trials": ("How many trials were planned.", FROM_ONE),
        "snapshot": "How its usage compares with its snapshot, if you use them and all went as expected.",
        "status": "The worst status of its trials; not-run if none has ended.",
        "passed": "Whether all planned trials ended as expected.",
        "score": ("The mean score of the trials that count; null if none does.", SHARE),
        "rate": "The share of counted trials that ended as expected; null if none counts.",
        "trials": "The trials that ended, by number.",
    },
    "rate": {
        "passed": ("Trials that ended as expected.", NOT_NEGATIVE),
        "total": ("Trials that count: all that ended, without errored ones.", FROM_ONE),
        "value": ("passed divided by total.", SHARE),
        "low": ("The lower end of Wilson's 95 % interval.", SHARE),
        "high": ("The upper end of Wilson's 95 % interval.", SHARE),
        "errored": ("Trials that errored and do not count.", NOT_NEGATIVE),
        "if_errored_failed": ("The share if all errored trials had failed: its lower bound.", SHARE),
        "if_errored_passed": ("The share if all errored trials had passed: its upper bound.", SHARE),
        "first_passed": ("Trials whose first attempt ended as expected.", NOT_NEGATIVE),
        "first_total": ("Trials whose first attempt counts, because it did not error.", NOT_NEGATIVE),
        "flaky": ("Trials that ended as expected only on a later attempt.", NOT_NEGATIVE),
    },
    "trial": {
        "number": ("Which sample of its execution this is, from 1.", FROM_ONE),
        "status": "The verdict of the last attempt; errored says nothing about the agent.",
        "passed": "Whether it ended as expected: passed or expected-failed.",
        "score": ("The weighted mean of the grades; null if it errored.", SHARE),
        "flaky": "Whether it ended as expected only on a later attempt.",
        "failure": "Why it did not go as its check asks; null if it did.",
        "failure_class": "The group that the failure belongs to: the author's, or the default one.",
        "grades": "The decision on each check; empty if none was asked.",
        "usage": "What the deciding attempt took.",
        "cost_usd": "The same figure as in usage, where it is easy to find.",
        "total_usage": "What all attempts took together; unknown figures are left out of the sum.",
        "steps": ("How many model rounds were seen.", NOT_NEGATIVE),
        "detected_skills": "The skills whose use there is evidence of.",
        "skill_shown": "Whether the session shows the skill of its arm in any way, or null if its arm has none.",
        "skill_loaded": (
            "Whether the session loaded the skill of its arm; null if its arm has none, or if the session cannot tell."
        ),
        "skill_unwanted": "Whether its arm has a skill, and its case asks not to load it.",
        "skill_wanted": "Whether its arm has a skill, and its case asks to load it.",
        "other_skills": "The other skills that the session loaded; none if its arm has no skill.",
        "skills_listed": "Whether its arm has a skill, and the session lists those that the agent offers to its model.",
        "started_at": ("When the first attempt began: ISO 8601, in UTC.", MOMENT),
        "duration_s": ("Seconds of all attempts together.", NOT_NEGATIVE),
        "session_s": ("Seconds that the agent of the deciding attempt took, if it gave an answer.", NOT_NEGATIVE),
        "final_output": "The agent's answer; its first 2,000 characters.",
        "changed_files": ("How many files were created, modified or deleted.", NOT_NEGATIVE),
        "vacuous": "Whether every check held before the agent began, so that they say nothing about the agent.",
        "artifact_dir": "The folder of the deciding attempt.",
        "workspace_dir": "Where its workspace was kept, if it was.",
        "attempts": ("Every attempt, in order.", {"minItems": 1}),
        "notes": "What else a person should know, such as a classify_failure that raised.",
        "turns": ("How many turns of a conversation were taken; 0 if it is none.", NOT_NEGATIVE),
        "user": "How the user that a model played found the conversation; null if there is none.",
        "ended_early": "Why and when whet ended its agent, because all that its checks ask was known; or null.",
    },
    "user": {
        "outcome": "How it ended; null if the conversation broke off.",
        "reason": "Why, in the words of the model.",
        "model": "The model that played the user.",
        "usage": "What that model took in the deciding attempt.",
        "flags": "Signs that the agent tried to instruct the model that played the user.",
    },
    "attempt": {
        "number": ("Which attempt this is, from 1.", FROM_ONE),
        "status": "The verdict that it would have given.",
        "duration_s": ("Its seconds, with workspace and checks.", NOT_NEGATIVE),
        "artifact_dir": "The folder with all that was kept of it.",
        "workspace_dir": "Where its workspace was kept, if it was.",
        "failure": "Why it did not go as its check asks; null if it did.",
        "usage": "What it took.",
        "unpaid_usage": "The part of it that no provider was asked for, because a cassette answered.",
        "user_usage": "What the model that played the user took.",
        "judge_usage": "What the judge took; a verdict that was kept from an earlier question took nothing.",
        "unpriced": "The spenders whose cost is unknown.",
        "value": ("How it counts in comparisons; null if it errored.", SHARE),
    },
    "failure": {
        "phase": ("Where in the attempt it happened.", {"enum": get_args(Phase)}),
        "code": ("What happened, as a word for programs.", {"examples": ["assertion", "timeout"]}),
        "cause": ("Who caused it.", {"enum": get_args(Cause)}),
        "message": "What happened, for a person.",
        "location": "The line of the suite where it happened, if there is one.",
        "traceback": "Python's traceback, for a check that crashed.",
    },
    "failure_class": {
        "id": "What failures of one class share.",
        "label": "What people read; null if the id says it.",
    },
    "grade": {
        "check": "The label of the check.",
        "value": ("How well the check is met.", SHARE),
        "passed": "Whether the check is met.",
        "reason": "Why not, in the words of the check.",
        "evidence": "What the check printed; its first 2,000 characters.",
        "location": "The line that decided, if there is one.",
        "failure_class": "The class that the check gave to its failure.",
        "duration_s": ("Seconds that the check took.", NOT_NEGATIVE),
        "weight": "How much it counts in the score.",
        "undecided": "Whether the grader could not decide.",
        "turn": ("The turn of a conversation that the check belongs to; null if it belongs to none.", FROM_ONE),
        "events": "The places of the events of the session that the check looked at, from 0, as far as they are known.",
    },
    "location": {
        "file": "The absolute path of a file.",
        "line": ("The line, from 1; 0 if it is not known.", NOT_NEGATIVE),
    },
    "usage": {
        "total_tokens": "Input and output together, if both are known.",
        "input_tokens": "Tokens read, with those from a cache and those written to one.",
        "output_tokens": "Tokens written, with reasoning.",
        "cached_tokens": "The part of input_tokens that came from a cache.",
        "cache_write_tokens": "The part of input_tokens that was written to a cache.",
        "reasoning_tokens": "The part of output_tokens that was reasoning.",
        "cost_usd": "Dollars.",
        "cost_source": "Where the cost comes from: the agent, or a table of prices, if only for a part of a sum.",
        "sources": (
            "Where each known figure comes from: the provider, computed from such figures, or guessed by characters.",
            {"propertyNames": {"enum": ["total_tokens", *TOKEN_FIGURES]}},
        ),
    },
    "detected_skill": {
        "skill": "Its name, without the plug-in before it.",
        "confidence": "How sure it is that the skill was used.",
        "evidence": "What speaks for it, the best first; of each confidence the first five.",
    },
    "skill_evidence": {
        "confidence": "How sure it makes us that the skill was used.",
        "why": "What was seen, for a person.",
        "event": ("The place of the event in the session, from 0.", NOT_NEGATIVE),
    },
    "snapshot": {
        "key": "The name of its entry in the snapshot file.",
        "status": "exceeded fails the execution; missing, unavailable and mismatch make it errored.",
        "metric": "What is compared.",
        "value": "The mean over the trials of this run.",
        "stored": "The stored figure.",
        "allowed": "The most that still holds.",
        "message": "What happened, in a sentence.",
    },
    "lift": {
        "runner": "Which runner.",
        "value": ("The score with the skill minus the score without it, over the cases, by weight.", DIFFERENCE),
        "low": "The lower end of the interval on these cases, as in comparisons.",
        "high": "The upper end.",
        "skill": ("The score with the skill, by weight.", SHARE),
        "no_skill": ("The score without it, by weight.", SHARE),
        "better": ("How many cases the skill made better.", NOT_NEGATIVE),
        "worse": ("How many cases it made worse.", NOT_NEGATIVE),
        "same": ("How many it left as they were.", NOT_NEGATIVE),
        "unpaired": "Cases that lack a score in one of the arms, or ask about nothing but the skill itself.",
        "triggered": (
            "How many checks of whether the skill was triggered held with it; the lift does not count them.",
            NOT_NEGATIVE,
        ),
        "asked": ("Of how many such checks.", NOT_NEGATIVE),
        "cases": "The cases with a score in both arms.",
    },
    "case_lift": {
        "case": "Its id.",
        "skill": ("Its mean score with the skill.", SHARE),
        "no_skill": ("Its mean score without it.", SHARE),
        "value": ("The difference.", DIFFERENCE),
        "weight": ("How much it counts.", POSITIVE),
    },
    "arm": {
        "name": "Its name.",
        "commit": "The commit that its skill was taken from, if it was.",
        "differs_by": "What is special about it, by content: two arms with the same facts do not differ in anything.",
    },
    "comparison": {
        "baseline": "The arm that is compared with.",
        "candidate": "The arm that is compared.",
        "verdict": "What was decided about the candidate.",
        "difference": ("The rate of the candidate minus that of the baseline, by weight.", DIFFERENCE),
        "low": ("The lower end of its interval on these cases, however errored trials would have gone.", DIFFERENCE),
        "high": ("The upper end.", DIFFERENCE),
        "margin": ("How much worse still counts as not worse.", SHARE),
        "level": ("The level of the interval.", SHARE),
        "like_these": "The difference on other cases like these; null for a single case.",
        "baseline_rate": "The rate of the baseline on these cases.",
        "candidate_rate": "The rate of the candidate on these cases.",
        "cases": "Every case that one of the arms has.",
        "amounts": "What a trial took in both arms.",
        "errored": "The trials that errored, and what they could change.",
        "spread": ("The variance of a trial within its case, summed over both arms.", NOT_NEGATIVE),
        "trials": ("How many trials counted.", NOT_NEGATIVE),
        "scored": "Whether trials count by scores between 0 and 1, so that rates are mean scores.",
        "runner": "The runner of both arms; null if the arms differ by their runner.",
        "contaminated": ("How many trials found a skill that their arm should not have.", NOT_NEGATIVE),
        "loads": "How often the skill of each side was loaded; nothing for a side without one.",
        "judging": "What a judge has to do with it; null if no trial was judged by a model.",
        "pairs": "What a judge said of pairs of answers; null if it was not asked at this look.",
        "stretch": ("How many times as far the ends reach because trials of a round went alike.", FROM_ONE),
        "looks": ("How often the run was looked at, this time included.", FROM_ONE),
        "interleaved": "Whether the arms took turns.",
        "notes": "What a reader must know before relying on it, a sentence each.",
        "aim": "Whether the candidate reaches the goal of the run; null if it has none.",
        "splits": "How many of the cases that both arms have are of each part; empty if the suite was not split.",
    },
    "aim": {
        "goal": "What the candidate shall be without being worse.",
        "progress": "Whether that is reached, missed or open.",
        "amount": "What it shall take less of; null if that is not known in both arms.",
        "ratio": "How many times as much it takes.",
    },
    "until": {
        "effect": ("The difference that matters.", SHARE),
        "rounds": ("The most rounds.", FROM_ONE),
        "margin": ("How much worse counts as not worse; null if only better and worse are decisions.", SHARE),
        "error": ("How often all comparisons of the run together may be wrong: 0.05, or less by request.", SHARE),
        "goal": "What the candidate shall be without being worse; null if only its verdicts decide.",
    },
    "look": {
        "round": ("The round that was complete.", FROM_ONE),
        "seen": "Each comparison as it was then.",
        "stop": "Why the run stopped there; null if it went on.",
    },
    "seen": {
        "candidate": "The arm that was compared with the baseline.",
        "runner": "The runner of the baseline.",
        "difference": ("The difference then.", DIFFERENCE),
        "low": ("The lower end of its interval, at the boundary of this look.", DIFFERENCE),
        "high": ("The upper end.", DIFFERENCE),
        "verdict": "What it said.",
        "chance": ("The chance to decide by the last round, if the effect is real.", SHARE),
        "progress": "Whether the goal was reached, missed or open; null if the run has none.",
        "ratio": "How many times as much the candidate took of what shall be less; null if that has no end or no goal.",
    },
    "interval": {
        "value": "The estimate.",
        "low": "The lower end of its interval.",
        "high": ("The upper end; null if there is none.", {"type": ["number", "null"]}),
    },
    "case_change": {
        "case": "Its id.",
        "baseline": ("Its mean value in the baseline; null if no trial counted.", SHARE),
        "candidate": ("Its mean value in the candidate; null if no trial counted.", SHARE),
        "baseline_trials": ("How many trials of the baseline counted.", NOT_NEGATIVE),
        "candidate_trials": ("How many trials of the candidate counted.", NOT_NEGATIVE),
        "weight": ("How much it counts.", NOT_NEGATIVE),
        "may_be_chance": "Whether its change may be chance, given how many cases there are.",
    },
    "amount_change": {
        "amount": "What was measured.",
        "baseline": ("The mean of a trial in the baseline, over cases.", NOT_NEGATIVE),
        "candidate": ("The mean of a trial in the candidate.", NOT_NEGATIVE),
        "ratio": "How many times as much the candidate takes; null if that cannot be known.",
    },
    "errored": {
        "baseline": ("How many trials of the baseline errored.", NOT_NEGATIVE),
        "candidate": ("How many trials of the candidate errored.", NOT_NEGATIVE),
        "if_failed": "The difference if all of them had failed.",
        "if_passed": "The difference if all of them had passed.",
        "decisive": "Whether leaving them out would have led to another verdict.",
        "blameless": ("How many errored without any part of their agent or checks in it.", NOT_NEGATIVE),
    },
    "pair_figures": {
        "candidate": "The arm whose wins count.",
        "baseline": "The arm beside it.",
        "runner": "The runner of the baseline.",
        "reference": "Whether it is beside stored answers, so that the baseline is no arm.",
        "verdict": "Whether the candidate answers better or worse.",
        "reason": "Why, in a few words.",
        "pairs": ("How many pairs have a winner or are a tie.", NOT_NEGATIVE),
        "wins": ("How many the candidate won in both orders.", NOT_NEGATIVE),
        "losses": ("How many the baseline won in both orders.", NOT_NEGATIVE),
        "ties": ("How many others there are.", NOT_NEGATIVE),
        "depend_on_order": ("How many ended otherwise in the other order.", NOT_NEGATIVE),
        "left_out": ("How many have no answer of the judge, or of an arm.", NOT_NEGATIVE),
        "cases": ("How many cases the pairs are of.", NOT_NEGATIVE),
        "deciding": ("How many of these one of the two won more often.", NOT_NEGATIVE),
        "level": ("What p is at most if it is decided.", SHARE),
        "looks": ("How often the run was looked at, this time included.", FROM_ONE),
        "p": ("How likely so much is if no arm answers better.", SHARE),
        "difference": "Wins less losses as a share of the pairs; null without any.",
    },
    "judging": {
        "verdicts": ("How many trials a model judged.", NOT_NEGATIVE),
        "answers": ("How many distinct answers those are.", NOT_NEGATIVE),
        "error": ("The share of answers that it is wrong about, as the settings said or as is assumed.", SHARE),
        "assumed": "Whether that share is assumed, because the settings did not say it.",
        "favour": ("By how much the judge would have to favour an arm for the verdict not to hold.", DIFFERENCE),
        "of_failures": (
            "The same as a share of failures: it would have to pass so many more of those of the arm that it favours.",
            NOT_NEGATIVE,
        ),
        "share": ("The part of the difference that rests on judged statements; null if there is none.", SHARE),
        "check": "Whether people have checked the judge by labels that count.",
        "counted": "The difference as their labels count it; null without any.",
    },
    "counted_difference": {
        "labels": ("How many labels count.", NOT_NEGATIVE),
        "missing": ("How many more are needed before there is a value.", NOT_NEGATIVE),
        "raw": ("The difference as the judge has it.", DIFFERENCE),
        "value": ("The difference as labels count it; null if they are too few.", DIFFERENCE),
        "low": ("The lower end of its interval.", DIFFERENCE),
        "high": ("The upper end of its interval.", DIFFERENCE),
        "baseline": "The rate of the baseline as labels count it.",
        "candidate": "The rate of the candidate as labels count it.",
        "more": ("How many more labels would decide; null if it is decided, or if none would.", FROM_ONE),
    },
    "arm_score": {
        "runner": "Which runner.",
        "arm": "Which arm.",
        "score": ("The mean of the scores of its cases, by weight; null if no case has one.", SHARE),
        "cases": ("How many cases have a score.", NOT_NEGATIVE),
    },
    "record": {
        "lines": ("The lines of the journal.", NOT_NEGATIVE),
        "hash": ("The hash that its last line ends in; null if there is no line.", SHA256),
        "run": ("The SHA-256 of run.json.", SHA256),
        "workspaces": "The hash of each thing below workspaces/ that trials with a shared workspace left, by its path.",
        "digest": ("The SHA-256 of all bytes of this document in front of the comma before this field.", SHA256),
    },
}


def results_schema() -> dict[str, Any]:
    """Make the schema: closed, and with a sentence about each field."""
    _, classes = msgspec.json.schema_components([WrittenRun], ref_template="#/$defs/{name}")
    names = {name: _definition_name(name) for name in classes}
    definitions = {names[name]: _definition(names[name], found) for name, found in classes.items()}
    return {**HEAD, "$defs": _renamed(definitions, names)}


def _definition_name(name: str) -> str:
    plain = name.removeprefix("Written")
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in plain).lstrip("_")
    return NAMES.get(name, snake)


def _definition(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    unlike = FIELDS.get(name, {}).keys() ^ found["properties"].keys()
    if unlike:
        raise SystemExit(f"FIELDS and the class of {name} do not agree on {', '.join(sorted(unlike))}")
    properties = {field: _field(FIELDS[name][field], kind) for field, kind in found["properties"].items()}
    return {
        "type": "object",
        "description": found["description"],
        "additionalProperties": False,
        "required": [field for field in properties if field not in LATER.get(name, ())],
        "properties": properties,
    }


def _field(known: str | tuple[str, Mapping[str, Any]], kind: Mapping[str, Any]) -> dict[str, Any]:
    description, rules = known if isinstance(known, tuple) else (known, {})
    kept = {key: value for key, value in kind.items() if key != "default"}
    return {**kept, **rules, "description": description}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Point references at the names of definitions."""
    if isinstance(value, dict):
        return {
            key: f"#/$defs/{names[item.rpartition('/')[2]]}" if key == "$ref" else _renamed(item, names)
            for key, item in value.items()
        }
    return [_renamed(item, names) for item in value] if isinstance(value, list) else value


def main() -> int:
    """Write the files, or with `--check` say whether they are as they should be."""
    schemas = {FILE: results_schema(), settings_schema.FILE: settings_schema.settings_schema()}
    texts = {file: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for file, schema in schemas.items()}
    if "--check" not in sys.argv[1:]:
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8")
        return 0
    stale = [file.name for file, text in texts.items() if file.read_text(encoding="utf-8") != text]
    for name in stale:
        print(f"{name} is not what the code says; run python bench/schemas.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
