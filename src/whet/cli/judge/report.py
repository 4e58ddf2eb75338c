"""`whet judge report`: how well the judge agrees with people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from whet import exit_codes
from whet.cli.common import CONFIG, JSON, given_settings, print_document, print_lines, screen_of, setting
from whet.cli.grammar.candidates import complete_runs
from whet.cli.judge.runs import LABELS, judged_runs


@click.command("report", short_help="Say how well the judge agrees with people, and what that does to decisions.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@LABELS
@click.option("--save", is_flag=True, help="Write what was found to judge.lock.json beside the labels, for a gate.")
@click.option("--rejudge", is_flag=True, help="Ask the judge of today about the labelled answers first.")
@click.option("--suggest-threshold", is_flag=True, help="Also say at which rating the judge does best on these labels.")
@JSON
@setting("output_dir", help="Find runs in this folder.")
@CONFIG
def report_command(
    runs: tuple[str, ...],
    *,
    labels: Path | None,
    save: bool,
    rejudge: bool,
    suggest_threshold: bool,
    as_json: bool,
    config_file: Path | None,
    **options: Any,
) -> int:
    """Hold the judge of each RUN (default: latest) against the labels of people beside the suite.

    A label counts while its judge, its statement and its answer are what they were. The others are named with the
    reason.
    """
    from whet.report.judging.figures import judge_report
    from whet.report.judging.lock import save_lock
    from whet.report.judging.words import report_lines

    judged = judged_runs(runs, options, config_file, labels)
    if rejudge:
        from whet.run.judging.rejudge import rejudge as ask_again

        judged = ask_again(judged, given_settings(options), config_file)
    report = judge_report(judged, suggest=suggest_threshold)
    lock = save_lock(judged, report) if save else None
    if as_json:
        print_document(report)
    else:
        print_lines(report_lines(report, screen_of(sys.stdout)))
        if lock is not None:
            print_lines([f"saved: {lock}"])
    return exit_codes.DONE
