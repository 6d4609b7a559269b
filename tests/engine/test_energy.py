"""Energy counters, on files that look like RAPL's (the counter of a test machine may not be readable)."""

from pathlib import Path

from engine.energy import EnergyMeter


def package(folder: Path, micro: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "name").write_text("package-0\n")
    (folder / "energy_uj").write_text(f"{micro}\n")
    (folder / "max_energy_range_uj").write_text("10000000\n")


def test_counts_joules_since_it_was_made(tmp_path: Path) -> None:
    package(tmp_path / "intel-rapl:0", 1_000_000)
    meter = EnergyMeter(tmp_path)
    package(tmp_path / "intel-rapl:0", 3_500_000)
    assert meter.joules() == {"package-0": 2.5}


def test_a_counter_that_wrapped_still_counts_forward(tmp_path: Path) -> None:
    package(tmp_path / "intel-rapl:0", 9_000_000)
    meter = EnergyMeter(tmp_path)
    package(tmp_path / "intel-rapl:0", 500_000)
    assert meter.joules() == {"package-0": 1.5}


def test_parts_of_a_package_are_not_counted_twice(tmp_path: Path) -> None:
    package(tmp_path / "intel-rapl:0", 0)
    package(tmp_path / "intel-rapl:0:0", 0)
    meter = EnergyMeter(tmp_path)
    package(tmp_path / "intel-rapl:0", 1_000_000)
    package(tmp_path / "intel-rapl:0:0", 700_000)
    assert meter.joules() == {"package-0": 1.0}


def test_without_counters_there_is_nothing_not_zero(tmp_path: Path) -> None:
    assert EnergyMeter(tmp_path).joules() == {}
