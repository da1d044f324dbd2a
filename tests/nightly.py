"""Tests with many variants: how many of them run in CI, and the others nightly.

Variants of a test take nearly the same way through the code. Those that run in CI are spread evenly
over all, from the first one on.
"""

VARIANTS_IN_CI = {
    "balls/test_batched.py::test_resumed_at_every_moment_it_gives_the_same_bits": 3,
    "balls/test_batched.py::test_rows_without_weight_never_join": 2,
    "balls/test_batched.py::test_certified_ball_is_the_optimum": 7,
    "balls/test_batched.py::test_certified_ball_of_one_class_is_the_optimum": 7,
    "balls/test_random_rows.py::test_a_row_is_drawn_as_often_as_its_weight_says": 3,
    "balls/test_random_rows.py::test_a_sample_of_rows_in_any_order_is_from_everywhere": 5,
    "balls/test_random_rows.py::test_every_row_is_as_likely_in_a_sample_as_any_other": 3,
    "balls/test_random_rows.py::test_position_decides_what_is_drawn": 7,
    "balls/test_random_rows.py::test_rows_are_those_of_their_indices": 9,
    "balls/test_random_rows.py::test_streamed_draws_do_not_depend_on_their_size": 4,
    "papers/test_stepwise.py::test_a_thousand_steps_are_those_of_the_algorithm": 3,
    "cli/test_ignored_options.py::test_an_option_of_training_changes_something_or_is_refused": 3,
    "cli/test_output_table.py::test_a_link_to_nothing": 18,
    "cli/test_output_table.py::test_an_input_by_any_name": 24,
    "cli/test_outputs.py::test_the_file_of_a_group_of_commands_is_written_into": 2,
    "cli/test_scale_command.py::test_a_store_is_whole_or_not_there": 1,
    "cli/test_signals.py::"
    "test_a_question_before_and_after_there_is_a_run_does_not_end_the_process": 2,
    "cli/test_standard_streams.py::test_a_reader_that_has_seen_enough_is_no_error": 2,
    "cli/test_surroundings.py::test_full_disk_is_reported": 3,
    "core/test_small_pairs.py::test_each_pair_of_nu_svc_has_the_optimum_of_its_dense_problem": 5,
    "data/test_far_stores.py::test_shards_that_are_damaged_are_damage": 2,
    "data/test_forged_stores.py::test_forged_arrays_are_refused": 8,
    "data/test_forged_stores.py::test_statistics_of_constant_columns_are_accepted": 7,
    "data/test_shards.py::test_metadata_of_millions_of_items": 1,
    "data/test_to_text.py::test_text_comes_back": 2,
    "duals/test_box.py::test_working_sets": 32,
    "duals/test_low_rank_model.py::test_box_optimum_agrees_with_coordinate_descent": 4,
    "estimators/test_advice.py::test_bad_fits_are_told_what_is_wrong": 7,
    "estimators/test_advice.py::test_fits_that_follow_their_advice_are_told_nothing": 7,
    "estimators/test_clients.py::test_a_model_trained_by_workers_has_the_same_bits": 2,
    "estimators/test_conventions.py::test_a_search_finds_the_better_value": 7,
    "estimators/test_dask_collections.py::test_results_of_an_client_are_found": 3,
    "estimators/test_estimator_kernels.py::test_many_rows_and_duplicates": 2,
    "estimators/test_folds.py::test_folds_slice_both_axes_of_a_kernel_matrix": 7,
    "estimators/test_formulation_estimators.py::test_scikit_learn_contract": 32,
    "estimators/test_infinite_penalty.py::test_on_the_command_line": 1,
    "estimators/test_infinite_penalty.py::test_training_ends_and_says_so": 4,
    "estimators/test_l2_one_class.py::test_optimum_for_any_C": 3,
    "estimators/test_l2_one_class.py::test_certified_model_is_the_optimum": 11,
    "estimators/test_l2_svc.py::test_a_store_has_the_optimum_of_its_rows": 2,
    "estimators/test_l2_svc.py::test_certified_model_is_the_optimum": 11,
    "estimators/test_l2_svc.py::test_linear_kernel_agrees_with_liblinear": 3,
    "estimators/test_l2_svc.py::test_optimum_for_any_C": 5,
    "estimators/test_l2_svc.py::test_uncertified_fit_does_not_warn": 7,
    "estimators/test_labels.py::test_many_distinct_labels_warn_once": 5,
    "estimators/test_lazy_on_cluster.py::test_predictions_are_those_of_this_machine": 3,
    "estimators/test_probabilities.py::test_scikit_learn_contract": 24,
    "estimators/test_sorted_rows.py::"
    "test_a_sampled_ball_of_rows_in_any_order_is_as_good_as_of_shuffled_ones": 9,
    "estimators/test_sorted_rows.py::test_another_seed_is_another_search_of_streamed_rows": 2,
    "estimators/test_splits_of_stores.py::test_searches_shuffled_splits_and_workers": 1,
    "estimators/test_squared_losses_in_float64.py::test_an_objective_that_falls_ends_the_run": 1,
    "estimators/test_stopping.py::test_ctrl_c_saves_the_run_and_leaves_a_model": 2,
    "estimators/test_stopping.py::test_ctrl_c_without_a_checkpoint_leaves_a_model_too": 2,
    "estimators/test_uncertified.py::test_an_interrupted_run_goes_on_to_the_same_bits": 2,
    "estimators/test_uncertified.py::test_sorted_rows_that_are_streamed_are_drawn_at_random": 2,
    "estimators/test_uncertified.py::"
    "test_uncertified_training_ends_early_with_an_error_estimate": 1,
    "estimators/test_warm_start.py::test_another_start_leads_to_the_same_optimum": 6,
    "executors/test_failures.py::test_bits_stay": 3,
    "executors/test_same_bits.py::test_formulations_on_workers": 3,
    "executors/test_wrong_replies.py::test_one_faulty_worker_is_named_and_left_out": 3,
    "executors/test_wrong_replies.py::test_wrong_moments_of_the_columns": 3,
    "executors/test_wrong_replies.py::test_wrong_results_of_pairs": 3,
    "fit/test_folds_in_one_run.py::test_each_fit_is_that_of_its_own_in_many_parts": 3,
    "fit/test_gamma.py::test_workers_compute_the_same_bits": 1,
    "fit/test_log_check.py::test_entries_that_a_run_has_written_are_believed": 18,
    "fit/test_one_vs_one.py::test_each_pair_is_the_binary_fit_of_its_rows": 2,
    "papers/test_costs.py::test_a_refusal_is_as_if_nothing_had_been_given": 2,
    "papers/test_costs.py::test_a_resumed_run_keeps_to_what_was_decided": 1,
    "papers/test_row_file.py::test_killed_in_the_middle_of_a_write": 3,
    "models/test_forged_models.py::test_forged_fields_are_refused": 5,
    "models/test_forged_models.py::test_forged_tensors_are_refused": 5,
    "one_vs_one/test_pairs_resumed.py::test_resumed_at_every_moment_it_gives_the_same_bits": 3,
    "one_vs_one/test_small_classes.py::test_resumed_at_every_moment_it_gives_the_same_bits": 1,
    "fit/test_pair_training.py::test_lanes_do_not_change_the_bits": 4,
    "real_data/test_each_class_against_the_rest.py::"
    "test_one_vs_rest_agrees_with_single_fits_and_scikit_learn": 1,
    "real_data/test_l2_objectives.py::test_all_solvers_end_at_the_optimum": 4,
    "real_data/test_labels_of_many_classes.py::test_labels_are_scikit_learns": 3,
    "real_data/test_values_of_pairs.py::test_labels_are_scikit_learns": 4,
    "selection/test_folds_on_cluster.py::test_a_fold_is_a_task": 2,
    "selection/test_forged_records.py::test_a_file_that_is_no_record_is_refused": 8,
    "selection/test_forged_records.py::test_arrays_of_a_model_are_refused_or_harmless": 1,
    "selection/test_forged_records.py::test_the_header_of_a_model_is_refused_or_harmless": 1,
    "test_compilation.py::test_code_in_a_folder_that_cannot_be_written_to_is_loaded": 1,
    "test_imports.py::test_help_loads_neither_the_core_nor_other_commands": 8,
    "test_imports.py::test_nothing_of_clusters_and_clouds_is_loaded_unless_asked_for": 2,
    "tools/test_hmg_suite.py::test_each_strategy_has_the_optimum": 2,
    "training/test_crammer_singer.py::"
    "test_resumed_at_every_kind_of_moment_it_gives_the_same_bits": 1,
    "training/test_crammer_singer.py::"
    "test_resumed_in_an_order_of_the_paper_it_gives_the_same_bits": 2,
    "training/test_damaged_checkpoints.py::"
    "test_no_array_that_was_changed_leads_to_a_wrong_model": 15,
    "training/test_decomposition.py::test_resumed_at_every_moment_it_gives_the_same_bits": 2,
    "training/test_float64_resumed.py::test_resumed_it_has_the_same_bits": 1,
    "training/test_one_vs_rest.py::test_bits_do_not_depend_on_cache_slots_or_blocks": 2,
    "training/test_one_vs_rest.py::test_functions_solved_in_parallel_have_the_same_bits": 1,
    "training/test_one_vs_rest.py::test_resumed_at_every_kind_of_moment_it_gives_the_same_bits": 1,
    "working_sets/test_crowded.py::"
    "test_resumed_between_sets_of_neighbours_it_gives_the_same_bits": 2,
    "working_sets/test_functions.py::"
    "test_resumed_at_every_kind_of_moment_it_gives_the_same_bits": 2,
    "working_sets/test_leaps_resumed.py::test_resumed_at_every_moment_it_gives_the_same_bits": 1,
    "papers/test_shrinking.py::test_the_optimum_is_the_same": 4,
}
"""Numbers of variants, by file in tests/ and function."""


def nightly(names, most):
    """Places of the variants of a test that do not run in CI.

    Parameters
    ----------
    names : sequence
        All variants.
    most : int
        Number that run in CI.
    """
    kept = {i * len(names) // most for i in range(most)}
    return [place for place in range(len(names)) if most < len(names) and place not in kept]
