"""``capture = "statement"`` logs the same rows as ``row`` does (spec/triggers.md 7.1)."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from test_triggers import (  # noqa: F401 - tests that hold for both kinds of capture
    test_a_change_is_a_change_of_bytes,
    test_a_child_row_is_a_value_of_its_owner,
    test_a_child_row_may_come_before_its_owner,
    test_a_child_row_without_owner_or_value_logs_nothing,
    test_a_child_that_may_hold_a_value_twice_is_read_back,
    test_a_class_of_key_columns_alone,
    test_a_column_more_is_noticed_and_one_less_too,
    test_a_composite_owner_and_types_that_differ,
    test_a_type_with_an_equality_of_its_own_is_compared_by_it_and_logged_by_bytes,
    test_a_cascade_logs_nothing_after_the_delete_of_its_owner,
    test_any_identifier_is_a_name_and_nothing_else,
    test_applying_twice_changes_nothing,
    test_columns_that_are_excluded_are_not_even_looked_at,
    test_delete_and_truncate,
    test_drop_leaves_the_catalogue_as_it_was,
    test_equal_keys_of_other_spelling_mean_the_owner_as_it_is_spelled,
    test_every_text_is_a_canonical_key,
    test_generated_columns_are_logged_if_they_are_stored,
    test_hostile_functions_and_operators_are_not_called,
    test_insert,
    test_insert_of_nulls_is_not_lost,
    test_keys_of_every_type_are_canonical,
    test_statements_of_the_specification,
    test_text_of_a_coarse_collation_is_compared_and_quoted_by_bytes,
    test_the_key_has_changed_if_its_text_has,
    test_the_other_fields_of_a_row,
    test_update,
    test_update_of_the_key_is_another_object,
    test_upserts_merges_and_copies_are_captured,
    test_values_are_one_text_whatever_the_session,
    writer,
)
from watched import STYLES, Logged, Watched, fields, run

from eventlog.errors import TriggerError
from eventlog.sql.triggers import Style, Watch


@pytest.fixture
def empty(empty: Watched) -> Watched:
    return Watched(empty.conn, capture="statement")


@pytest.fixture
def usr(usr: Watched) -> Watched:
    return Watched(usr.conn, capture="statement")
