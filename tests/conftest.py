"""What takes long to compile is tested with `--all` only."""

import re

# Formats whose loops differ from those of others by one conversion.
RARE = {"bool", "int8", "uint8", "uint16", "int32", "uint32", "uint64", "complex64", "float8_e5m2"}
LONG = re.compile(
    r"of_real_beside_complex_takes_no_imaginary_part\[(?!x-propagate-40)"
    r"|allocates_little\[(mask_and_where|two_masks|two_masks_and_where|weights|complex_std)\]"
    r"|on_a_bare_processor_has_the_same_bits\[float16\]"
    r"|weights_are_within_two_ulps_of_exact\[16385-"
    r"|where_on_columns_gives_bits_of_rows\[shape[12]-"
    r"|agc_of_narrow_formats_rounds_once\[float16\]"
    r"|test_rmse_where_counts_kept_pairs_only\[16385-"
    r"|warmup_leaves_nothing_to_compile"
    r"|soak_of_four_threads"
    r"|allocates_little\[compare\]"
    r"|on_a_bare_processor_has_the_same_bits\[float32\]"
    r"|test_unit_rms_columns_give_bits_of_rows\[shape2-"
    r"|test_rmse_columns_give_bits_of_rows\[shape[23]-"
    r"|test_rms_windows_raise_counts|test_rms_windows_omit_leaves_out"
    r"|test_apply_dose_is_the_emulation_in_every_way\[float8"
    r"|test_dose_floor_is_a_dose.*float8"
)


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also test what takes long to compile")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--all"):
        return
    later = [item for item in items if is_long(item)]
    config.hook.pytest_deselected(items=later)
    long = set(later)
    items[:] = [item for item in items if item not in long]


def is_long(item):
    parameters = item.name.partition("[")[2].rstrip("]").split("-")
    return not RARE.isdisjoint(parameters) or LONG.search(item.name) is not None
