"""What new users did wrong, or what was hidden from them, and the tests of the exact answer. A test
that is renamed must be renamed here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]

_COMMANDS: Final = "unit/test_mistakes_commands.py"
_PROPOSALS: Final = "unit/test_mistakes_rights_and_proposals.py"
_CONSUMERS: Final = "faults/test_consumers.py"
_HEALTH: Final = "faults/test_health_everywhere.py"
_BORDERS: Final = "unit/test_borders.py"
_ARGUMENTS: Final = "unit/test_arguments.py"
_ONCE: Final = "faults/test_publish_once.py"
_EXPLAIN: Final = "dialects/postgresql/test_explain.py"
_PAGE: Final = "browser/test_status_page.py"
_ANSWERS: Final = "faults/test_http_answers.py"
_STOPPED: Final = "unit/test_stopped_commands.py"

MISTAKES: Final[dict[str, tuple[str, str]]] = {
    # --- silence
    "a consumer is reset to a record_id above the newest one": (
        _COMMANDS, "test_a_consumer_that_cannot_begin_there_is_refused_in_a_dry_run_too"),
    "a consumer counts rows as done that do not exist": (
        _CONSUMERS, "test_doctor_names_a_consumer_whose_set_lies_above_the_next_record_id"),
    "no table is captured, and the page is green": (
        _HEALTH, "test_tables_that_nobody_captures_are_an_error_everywhere"),
    "rows were refused, and the page is green": (
        _HEALTH, "test_refused_rows_are_shown_in_the_same_words_everywhere"),
    "a consumer stands, and the page is green": (
        _HEALTH, "test_a_consumer_that_does_not_move_is_shown_by_the_publishers_monitor"),
    "the title of the page hides the state": (
        _PAGE, "test_the_page_and_its_title_show_the_health_and_what_to_do"),
    "the login page of a proxy counts as an answer": (
        _ANSWERS, "test_login_page_of_a_proxy_is_a_suspicious_failure"),
    # --- proposals
    "rows of status E without an error row are listed nowhere": (
        _PROPOSALS, "test_rows_without_an_error_row_are_listed"),
    "a command that `errors` prints is refused": (
        _PROPOSALS, "test_every_proposed_command_is_accepted"),
    "the refusal of requeue names neither class nor key": (
        _PROPOSALS, "test_a_refusal_of_requeue_names_the_commands_that_are_accepted"),
    "nothing shows why an object is parked": (
        _EXPLAIN, "test_a_parked_event_is_shown_with_its_attempts_and_what_to_do"),
    "`doctor --why KEY --receiver` drops one of the two": (
        _COMMANDS, "test_the_key_of_an_object_is_no_option_of_doctor"),
    "different reasons of one code are merged": (
        _PROPOSALS, "test_different_reasons_of_one_code_are_not_merged"),
    "a key has a column that the class does not have": (
        _PROPOSALS, "test_a_wrong_key_is_answered_with_what_the_class_expects"),
    "a processed row is explained by a later event": (
        _EXPLAIN, "test_what_was_sent_for_a_processed_row_is_not_guessed"),
    "notes stand between an event and its document": (
        _EXPLAIN, "test_for_people_the_explanation_ends_with_the_document"),
    "the error row of `skip` lacks the last answer": (
        _PROPOSALS, "test_all_parked_events_are_given_up_at_once"),
    "`requeue --ids` names rows of status S": (
        _PROPOSALS, "test_requeue_of_rows_with_another_status_names_the_option"),
    "objects are parked, and no command is offered": (
        _PAGE,
        "test_objects_and_errors_are_grouped_with_one_command_each_in_blocks_of_commands_alone"),
    "the status of an answer is hidden with its text": (
        "unit/test_monitor.py", "test_of_a_hidden_answer_its_status_is_left"),
    # --- packages and programs
    "the method of a package takes other arguments, or yields a wrong step": (
        _BORDERS, "test_a_wrong_step_of_a_source_is_named_with_its_package_and_line"),
    "a package returns a wrong backlog": (
        _BORDERS, "test_a_wrong_backlog_does_not_end_status"),
    "a package returns a wrong writer": (
        _BORDERS, "test_a_wrong_writer_of_a_format_is_named_with_its_package_and_line"),
    "a package returns a wrong change": (
        _BORDERS, "test_a_wrong_change_of_a_format_is_named_with_its_package_and_line"),
    "a package returns a wrong answer": (
        _BORDERS, "test_a_wrong_answer_of_a_sink_is_named_with_its_package_and_line"),
    "a function returns a wrong verdict": (
        _BORDERS, "test_a_function_that_returns_a_wrong_verdict_is_named_with_its_line"),
    "a function of Spark's API gets a path where it needs a table, or a wrong time": (
        _ARGUMENTS, "test_a_wrong_argument_of_the_spark_api_is_named_at_the_call"),
    "a function of the Python API gets a wrong argument": (
        _ARGUMENTS, "test_a_wrong_argument_of_the_python_api_is_named"),
    "the installed pandas is too old, or missing": (
        _ARGUMENTS, "test_pandas_that_pyspark_cannot_use_is_named_before_a_job_starts"),
    "`show(3)` of a DataFrame prints a traceback": (
        "unit/test_closed_output.py",
        "test_a_worker_whose_output_is_closed_prints_no_traceback"),
    "the Spark master does not exist": (
        _COMMANDS, "test_a_wrong_spark_master_is_refused_before_spark_starts"),
    "`--format parquet`": (
        _COMMANDS,
        "test_a_layout_of_files_that_is_taken_for_a_format_is_answered_with_what_writes_it"),
    # --- publish --once
    "the figures of `publish --once` do not add up": (
        _ONCE, "test_the_figures_of_the_last_line_add_up"),
    "rows were refused, and the exit code is 0": (
        _ONCE, "test_refused_rows_give_exit_code_1_unless_they_are_allowed"),
    "rows were invalid, and the exit code is 0": (
        _ONCE, "test_invalid_rows_give_exit_code_1_unless_they_are_allowed"),
    "a class is not published, and the exit code is 0": (
        _ONCE, "test_a_class_that_is_not_published_gives_exit_code_1"),
    "fifteen lines of settings stand before the result": (
        _ONCE, "test_the_settings_are_one_line"),
    # --- rights and names
    "a right is missing, and each command names another fix": (
        _PROPOSALS, "test_every_refused_right_leads_to_one_sentence"),
    "the rights of resync, purge, requeue and reset are printed nowhere": (
        _PROPOSALS, "test_what_the_sentence_names_prints_what_is_missing"),
    "`grants` for a role that does not exist": (
        _PROPOSALS, "test_grants_for_a_role_that_does_not_exist_are_printed_with_a_remark"),
    "a sequence does not exist, and an upgrade is proposed": (
        _PROPOSALS, "test_a_wrong_sequence_is_not_answered_with_an_upgrade"),
    "a schema, class or consumer is misspelled": (
        _PROPOSALS, "test_a_misspelled_name_gets_the_nearest_one_and_no_unrelated_one"),
    "the directory of the sink cannot be made": (
        _PROPOSALS, "test_doctor_tries_to_write_where_the_directory_will_be"),
    # --- the configuration
    "`watch` is written as a list, as a table, twice, or with children": (
        _COMMANDS, "test_a_watch_that_is_written_wrongly_is_answered_with_its_form"),
    "`init --tables` does not list what it leaves out": (
        _COMMANDS, "test_init_lists_the_tables_that_it_leaves_out"),
    "the owner's URL stays in the file of the daemon": (
        _PROPOSALS, "test_init_warns_that_the_file_has_the_url_of_the_user_that_ran_it"),
    "the export of a driver has the names of the directory": (
        _COMMANDS,
        "test_an_export_with_the_names_of_the_directory_gives_the_user_and_what_is_missing"),
    "a setting has the wrong form": (
        _COMMANDS, "test_a_setting_of_the_wrong_form_is_answered_with_an_example"),
    "`sink.url` is no URL": (
        "faults/test_http_sink.py", "test_wrong_settings_are_refused_before_anything_is_sent"),
    "the receiver's certificate is for another name": (
        "faults/test_http_connections.py", "test_certificate_of_another_host_is_refused"),
    "the receiver's certificate is not trusted": (
        "faults/test_http_connections.py",
        "test_certificate_of_an_unknown_authority_is_refused"),
    # --- commands
    "a second process takes over in silence": (
        _COMMANDS, "test_a_process_that_takes_over_from_another_one_logs_it"),
    "`decode` of noise ends with exit code 0": (
        _COMMANDS, "test_a_file_that_holds_nothing_of_its_format_is_a_failure_of_decode"),
    "`top` without a monitor is called an error of the database": (
        _COMMANDS, "test_a_monitor_that_does_not_answer_is_no_error_of_the_database"),
    "Ctrl-C in a transaction": (
        _STOPPED, "test_a_change_in_a_transaction_is_rolled_back_and_reported_so"),
    "Ctrl-C in `resync`": (
        _STOPPED, "test_a_resync_that_is_stopped_shows_how_to_continue"),
    "Ctrl-C in `publish --once`": (
        _STOPPED, "test_one_run_of_the_publisher_that_is_stopped_reports_what_waits"),
    "`db downgrade base` drops in a script without a word": (
        _COMMANDS, "test_a_downgrade_in_a_script_names_what_it_removes"),
    # --- values and documentation
    "an inet address is sent with /32": (
        "unit/test_cloudevents.py", "test_an_address_is_as_postgresql_prints_it"),
    "the types that a live copy has as text are not all listed": (
        _COMMANDS, "test_the_guide_of_spark_names_arrays_among_the_types_that_become_text"),
    "two consumers in Kubernetes": (
        _COMMANDS, "test_the_guide_of_consumers_shows_how_they_run_in_kubernetes"),
}  # fmt: skip
"""Each mistake, with the file and the name of its test."""


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_a_test_of_its_answer(mistake: str) -> None:
    file, name = MISTAKES[mistake]
    assert name in names_in(file), f"{file} has no test {name}"
