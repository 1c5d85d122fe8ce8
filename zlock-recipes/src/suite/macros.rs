//! The list of cases, and the macros that make tests of them.

/// Generates the tests of the named groups for a lock that can act as a mutex:
/// `mutual_suite!(paused | real, store, Lock, [group, ..])`. `store` is a future of `Option<impl Store>`, created anew
/// for each test. The group `reentry` is for locks that can be entered again, and `alone` for paths that no other client
/// uses. See [`suite`](crate::suite).
#[macro_export]
macro_rules! mutual_suite {
    ($time:ident, $store:expr, $lock:ty, [$($group:ident),* $(,)?]) => {
        $($crate::mutual_group!($group, $time, $store, $lock);)*
    };
}

/// Generates the tests of the groups that a lock can run through the blocking API: `thread_suite!(real, store, Lock)`.
/// Cases that cancel calls, enter scopes, or are about requests of tasks are left out. See
/// [`Threads`](crate::suite::Threads).
#[macro_export]
macro_rules! thread_suite {
    ($time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            mutual,
            [$crate::suite::Threads<$lock>],
            [
                mx_01_guard_scope,
                mx_06_one_instance,
                mx_06_ten_instances,
                mx_06_ten_sessions,
                mx_08_siblings,
                mx_09_two_sessions,
                timeout_leaves_nothing,
                t45_deadline_in_the_past,
                t56_guard_moved_to_another_task,
                run_holds_and_releases,
                run_is_cancelled_by_the_loss,
            ]
        );
        $crate::suite_tests!(
            $time,
            $store,
            safety,
            [$crate::suite::Threads<$lock>],
            [
                no_grant_on_a_dead_session,
                no_grant_by_try_on_a_dead_session,
                no_grant_without_a_node,
                removed_waiter_wakes,
                release_spares_the_successor,
                release_without_a_node_is_already_lost,
                release_after_the_session_spares_the_successor,
                t29_close_wakes_the_waiter,
                fencing_tokens_grow,
            ]
        );
        $crate::mutual_suite!($time, $store, $crate::suite::Threads<$lock>, [strict, revocation, shutdown]);
    };
}

/// The cases of each group. A part of [`mutual_suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! mutual_group {
    (mutual, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            mutual,
            [$lock],
            [
                mx_01_guard_scope,
                mx_04_vanishing_parent,
                mx_06_one_instance,
                mx_06_ten_instances,
                mx_06_ten_sessions,
                mx_08_siblings,
                mx_09_two_sessions,
                timeout_leaves_nothing,
                t45_deadline_in_the_past,
                t55_cancelled_waiter_is_cleaned_up_at_once,
                t56_guard_moved_to_another_task,
                t60_nothing_piles_up,
                run_holds_and_releases,
                run_is_cancelled_by_the_loss,
            ]
        );
    };
    (alone, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!($time, $store, alone, [$lock], [mx_04_fresh_names, t58_participants]);
    };
    (reentry, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            reentry,
            [$lock],
            [mx_07_reentrant, mx_07_reentrant_by_try_and_by_another_instance, t18_no_reentry_after_the_loss,]
        );
    };
    (strict, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!($time, $store, strict, [$lock], [order_of_the_queue, no_herd]);
    };
    (safety, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            safety,
            [$lock],
            [
                no_grant_on_a_dead_session,
                no_grant_by_try_on_a_dead_session,
                no_grant_on_a_stale_listing,
                no_grant_without_a_node,
                removed_waiter_wakes,
                release_spares_the_successor,
                release_without_a_node_is_already_lost,
                release_after_the_session_spares_the_successor,
                every_waiter_wakes,
                t29_close_wakes_the_waiter,
                fencing_tokens_grow,
            ]
        );
    };
    (faults, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            faults,
            [$lock],
            [
                t1_answer_lost_for_good,
                t2_dropped_at_each_call,
                t3_a_refused_listing_ends_the_wait,
                t3_an_unanswered_listing_is_repeated,
                t8_the_first_error_counts,
                t8_refused_release,
                t9_background_does_not_spin,
                t9_not_found_ends_the_background,
                t28_a_slow_call_delays_nobody_else,
                t28_a_slow_listener_delays_nobody,
                t43_the_engine_repeats_nothing,
                a_hanging_call_does_not_hide_the_loss,
            ]
        );
    };
    (links, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            links,
            [$lock],
            [
                mx_02_outage_keeps_the_order,
                turn_comes_during_an_outage,
                t4_fr_06_release_while_disconnected,
                t53_release_on_a_broken_link,
                t53_release_overtaken_by_the_end_of_the_session,
                fr_01_answer_lost_once,
                fr_14_short_outage,
                fr_14_long_outage,
                fr_17_t26_late_expiry,
                t17_holder_knows_before_another_holds,
                t17_waiter_on_a_silent_link,
                time_limit_covers_a_broken_link,
                a_try_is_bounded,
                a_timeout_names_its_cause,
                t9_unreachable_store,
                t29_close_while_disconnected,
            ]
        );
    };
    (outlast, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            outlast,
            [$lock],
            [
                an_outage_ends_no_wait,
                a_release_during_an_outage_ends_no_wait,
                a_request_under_way_is_repeated,
                a_create_under_way_fails,
                a_time_limit_holds_during_an_outage,
            ]
        );
    };
    (revocation, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            revocation,
            [$lock],
            [
                holder_gets_the_request_and_releases,
                asked_before_the_holder_listens,
                nobody_to_ask,
                holder_that_does_not_listen_is_untouched,
                ends_with_the_loss,
                goes_on_when_the_store_does_not_answer,
                dropped_wait_leaves_nothing,
                asked_during_an_outage,
            ]
        );
    };
    (shutdown, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            shutdown,
            [$lock],
            [
                waiters_end_and_holders_are_asked,
                the_grace_period_ends,
                a_dropped_shutdown,
                unready_before_the_loss,
            ]
        );
    };
    (sweep, $time:ident, $store:expr, $lock:ty) => {
        $crate::suite_tests!(
            $time,
            $store,
            sweep,
            [$lock],
            [
                t2_free_lock,
                t2_try_free,
                t2_try_overtaken,
                t2_queued,
                t2_queued_with_a_time_limit,
                t2_queued_in_a_row,
                t2_time_runs_out,
                t2_session_ends,
                t2_release,
                t2_answer_lost,
                t2_link_cut,
                t2_link_cut_while_queued,
                t2_release_answer_lost,
            ]
        );
    };
}

/// Generates the tests of the named groups that are about one recipe:
/// `recipe_suite!(paused | real, store, [group, ..])`. See [`suite`](crate::suite).
#[macro_export]
macro_rules! recipe_suite {
    ($time:ident, $store:expr, [$($group:ident),* $(,)?]) => {
        $($crate::recipe_group!($group, $time, $store);)*
    };
}

/// The cases of each group. A part of [`recipe_suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! recipe_group {
    (template, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            template,
            [],
            [
                output_comes_back_untouched,
                holds_while_it_runs,
                panic_releases,
                panic_at_once_releases,
                dropping_releases,
                busy_after_all_waits,
                no_wait_is_one_try,
                second_wait_keeps_the_place,
                t17_loss_cancels_the_closure,
                removal_and_close_cancel_the_closure,
                done_after_the_loss_is_an_error,
                run_on_after_loss,
                roots_and_names,
                nested_execute_reenters,
                nested_closures_are_small,
                mx_08_siblings_exclude_each_other,
                mx_06_counter,
                held_outlives_the_closure,
                mx_11_closure_hears_a_revocation,
                execute_fallible_has_one_error,
                scope_carried_over_by_spawn,
                t2_execute,
            ]
        );
    };
    (guard, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            guard,
            [],
            [
                dropped_outside_any_runtime,
                dropped_while_unwinding,
                reenter_by_hand,
                branches_of_one_scope_enter_together,
                scope_by_hand,
                scopes_nest,
                another_session_is_another_owner,
                two_clients_of_one_session,
                last_handle_ends_the_session,
                kept_context_does_not_keep_the_session,
                release_is_pending_after_the_operation_timeout,
                release_is_pending_when_no_server_answers,
                removal_is_noticed,
                lost_is_level_triggered,
                waiting_for_oneself_is_warned_of,
                node_data,
                backend_shared_with_others,
            ]
        );
    };
    (revocation, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            revocation,
            [],
            [all_readers_are_asked, all_who_hold_permits_are_asked, downgrade_keeps_the_request]
        );
    };
    (multi, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            multi,
            [],
            [
                ml_01_one_release_fails,
                ml_02_03_the_second_fails,
                t8_roll_back_fails,
                ml_04_one_deadline,
                t45_past_deadline,
                ml_05_opposite_orders,
                any_mix,
                lost_while_waiting,
                one_is_lost,
                scope_of_all,
                release_while_one_is_disconnected,
                t2_acquire,
                sets_that_cannot_be,
            ]
        );
    };
    (participants, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            participants,
            [],
            [of_a_mutex, of_a_read_write_lock, of_a_semaphore, who_has_left_is_left_out]
        );
    };
    (kinds, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            kinds,
            [],
            [
                readers_run_together,
                writer_runs_alone,
                permits_are_shared,
                nested_execute_reenters,
                loss_cancels_the_closure,
                permits_that_cannot_be,
            ]
        );
    };
    (cost, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            cost,
            [],
            [uncontended, contended, failed_try, looks_cost_nothing]
        );
    };
    (handed_over, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            handed_over,
            [],
            [costs_two_calls, by_a_dropped_guard, answers_in_another_order]
        );
    };
    (succession, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            succession,
            [],
            [
                others_in_between,
                who_gives_up_does_not_hand_over,
                a_deleted_successor_is_passed_over,
                a_deleted_holder_is_found_out,
                a_dropped_release,
                a_release_that_is_not_polled,
                an_answer_that_fails,
                a_session_that_ends_meanwhile,
            ]
        );
    };
    (handoff, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            handoff,
            [],
            [
                one_place_for_all,
                a_batch_is_bounded,
                by_a_dropped_guard,
                cancelled_waiters,
                a_timeout_removes_one_waiter,
                a_try,
                revocation_ends_the_batch,
                a_deleted_node_ends_the_batch,
                a_lost_lock_is_not_handed_over,
                a_loss_that_the_holder_finds_is_not_handed_over,
                a_try_after_the_loss,
                not_while_suspended,
                a_lost_session_ends_the_batch,
                close_wakes_everybody,
                a_failure_reaches_everybody,
                a_failure_between_two_places_is_outlasted,
                entering_again_belongs_to_a_turn,
                by_a_template_and_in_a_set,
                other_kinds_are_refused,
            ]
        );
    };
    (read_write, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            read_write,
            [],
            [
                rw_01_readers_together,
                rw_02_upgrade_refused,
                rw_03_a_writer_is_alone,
                rw_06_never_beside_a_writer,
                rw_07_node_data,
                t42_writer_reader_writer,
                order_between_kinds,
                a_writer_that_goes_lets_all_readers_in,
                readers_behind_two_writers_wake_once,
                entering_again,
                an_inner_reader_that_goes_first,
                t18_no_reentry_after_the_loss,
                a_mutex_on_the_same_path,
            ]
        );
    };
    (downgrade, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            downgrade,
            [],
            [
                rw_04_downgrade,
                rw_04_an_inner_reader_outlives_the_writer,
                a_waiting_writer_goes_on_waiting,
                refused_while_entered_again,
                t19_downgrade_after_the_loss,
                t19_the_session_ends_meanwhile,
                a_removed_node_is_noticed,
                a_reader_once_it_is_sent,
                answer_lost,
                answer_lost_and_dropped,
                never_answered,
                while_disconnected,
                link_breaks_meanwhile,
                t2_downgrade,
                t2_downgrade_answer_lost,
                release_without_a_node_is_already_lost,
            ]
        );
    };
    (semaphore, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            semaphore,
            [],
            [
                sem_03_permits_come_back,
                sem_05_ten_sessions,
                sem_06_any_chunks,
                sem_08_09_timed,
                sem_10_participants,
                work_conserving,
                one_release_lets_many_in,
                no_holding_while_waiting,
                heavy_is_not_starved,
                impossible_numbers,
                another_maximum,
                not_entered_again,
                wakes_one,
                other_locks_on_the_same_path,
            ]
        );
    };
    (promotion, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            promotion,
            [],
            [
                grant_does_not_wait,
                answer_lost,
                released_meanwhile,
                refused,
                removed_node_is_noticed,
                on_the_first_listing,
                t2_in_the_middle,
                release_without_a_node_is_already_lost,
                cost,
            ]
        );
    };
    (input, $time:ident, $store:expr) => {
        $crate::suite_tests!(
            $time,
            $store,
            input,
            [],
            [paths, names, data, data_that_revokes, operation_timeout, attempts, extreme_times]
        );
    };
    (names, $time:ident, $store:expr) => {
        $crate::suite_tests!($time, $store, names, [], [a_place_needs_no_token, a_foreign_name_is_no_place]);
    };
}

/// One test a case, in a module named like the group. A part of the suite's macros.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    (paused, $store:expr, $group:ident, $lock:tt, [$($case:ident),* $(,)?]) => {
        mod $group {
            use super::*;
            $(
                #[tokio::test(start_paused = true)]
                async fn $case() {
                    let case = $crate::suite_case!($group, $case, $lock);
                    $crate::suite::run($store.await, true, stringify!($case), case).await;
                }
            )*
        }
    };
    (real, $store:expr, $group:ident, $lock:tt, [$($case:ident),* $(,)?]) => {
        mod $group {
            use super::*;
            $(
                #[tokio::test]
                async fn $case() {
                    let case = $crate::suite_case!($group, $case, $lock);
                    $crate::suite::run($store.await, false, stringify!($case), case).await;
                }
            )*
        }
    };
}

/// The function of one case. A part of the suite's macros.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_case {
    ($group:ident, $case:ident, []) => {
        $crate::suite::cases::$group::$case
    };
    ($group:ident, $case:ident, [$lock:ty]) => {
        $crate::suite::cases::$group::$case::<$lock>
    };
}
