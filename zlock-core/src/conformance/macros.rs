//! The list of cases, and the macro that makes tests of them.

/// Generates the tests of the named groups: `conformance!(paused | real, store, [group, ..])`. `store` is a
/// future of `Option<impl Store>`, created anew for each test. See [`conformance`](mod@crate::conformance).
#[macro_export]
macro_rules! conformance {
    ($time:ident, $store:expr, [$($group:ident),* $(,)?]) => {
        $(
            mod $group {
                use super::*;
                $crate::conformance_group!($group, $time, $store);
            }
        )*
    };
}

/// The cases of each group. A part of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_group {
    (contract, $time:ident, $store:expr) => {
        $crate::conformance_cases!($time, $store, {
            create: [
                token_that_is_no_uuid_is_refused,
                at_the_end_of_the_queue,
                returned_queue_has_the_node,
                alone_is_alone,
                missing_parents_are_made,
                vanishing_parent_costs_a_retry,
                belongs_to_the_session_of_the_epoch,
                fencing_tokens_grow,
                deletion_by_others_is_reported,
            ],
            create_unlisted: [makes_the_same_node, next_number_has_nothing_between],
            children: [
                missing_parent_is_an_empty_queue,
                foreign_and_nested_children_are_left_out,
                contains_what_the_backend_knew,
            ],
            children_up_to: [
                has_the_node_right_before,
                has_no_node_known_to_be_gone,
                is_missing_only_if_gone,
            ],
            children_with_watch: [fires_on_any_change, no_change_is_lost, works_on_a_missing_parent],
            exists_with_watch: [
                gone_node_is_gone,
                other_label_is_changed,
                no_deletion_is_lost,
                no_relabel_is_lost,
                relabel_is_not_a_deletion,
                fires_when_its_session_ends,
            ],
            relabel: [
                place_token_and_session_stay,
                repeating_is_harmless,
                gone_node_is_node_removed,
                node_of_a_lost_session_is_session_lost,
                own_notice_stays_silent,
            ],
            delete: [
                gone_already_is_ok,
                says_whether_it_removed_the_node,
                never_another_with_the_same_number,
                whatever_its_label,
                while_it_is_relabelled,
                by_token_finds_what_a_create_left,
                by_token_after_any_poll_of_a_create,
            ],
            hand_over: [removes_the_node, gone_successor_is_not_confirmed, gone_node_is_not_confirmed],
            data: [is_what_was_given, owner_is_returned, time_of_the_create_stays],
            data_with_watch: [
                fires_on_a_write_and_on_the_deletion,
                no_change_is_lost,
                relabel_loses_nothing,
                fires_when_its_session_ends,
                dropped_watch_leaves_the_others,
            ],
            set_data: [
                any_session_may,
                label_place_and_session_stay,
                gone_node_is_node_removed,
                with_a_relabel_both_take_effect,
                is_no_deletion_for_a_watch,
            ],
            session_events: [ended_session_is_lost_then_connected],
            background: [pushed_without_a_runtime, pushed_from_a_runtime_that_ends, closed_keeps_none],
            close: [
                later_operations_end_with_closed,
                nodes_are_gone_at_once,
                dropping_does_it_too,
                watches_fire,
                repeating_is_harmless,
            ],
        });
    };
    (numbers, $time:ident, $store:expr) => {
        $crate::conformance_cases!($time, $store, { children: [order_across_the_wrap] });
    };
    (watches, $time:ident, $store:expr) => {
        $crate::conformance_cases!($time, $store, {
            children_with_watch: [dropped_watch_leaves_none],
            exists_with_watch: [dropped_watch_leaves_none, gone_and_changed_leave_no_watch],
            data_with_watch: [dropped_watch_leaves_none],
        });
    };
    (links, $time:ident, $store:expr) => {
        $crate::conformance_cases!($time, $store, {
            create: [lost_answer_leaves_the_returned_node],
            create_unlisted: [lost_answer_brings_the_queue],
            relabel: [lost_answer_is_made_up_for],
            delete: [lost_answer_counts_as_removed, by_token_over_a_harmed_link],
            hand_over: [lost_answer_costs_no_node],
            set_data: [lost_answer_is_made_up_for],
            session_events: [
                deadline_is_before_the_end,
                deadline_while_it_owns_a_node,
                short_outage_keeps_the_epoch,
                long_outage_is_a_new_epoch,
                first_session_is_waited_for,
            ],
            close: [
                waiting_operations_end_with_closed,
                nodes_of_an_unreachable_client_expire,
                silence_is_no_confirmation,
                an_end_is_remembered,
            ],
        });
    };
}

/// One test a case. A part of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($time:ident, $store:expr, { $($method:ident: $cases:tt),* $(,)? }) => {
        $(
            mod $method {
                use super::*;
                $crate::conformance_tests!($time, $store, $method, $cases);
            }
        )*
    };
}

/// The tests of one method. A part of [`conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    (paused, $store:expr, $method:ident, [$($case:ident),* $(,)?]) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $case() {
                let case = $crate::conformance::cases::$method::$case;
                $crate::conformance::run($store.await, stringify!($case), case).await;
            }
        )*
    };
    (real, $store:expr, $method:ident, [$($case:ident),* $(,)?]) => {
        $(
            #[tokio::test]
            async fn $case() {
                let case = $crate::conformance::cases::$method::$case;
                $crate::conformance::run($store.await, stringify!($case), case).await;
            }
        )*
    };
}
