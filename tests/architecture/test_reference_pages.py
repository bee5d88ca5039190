"""Pages that are generated say what the code declares."""

from scripts.generate_reference import PAGE, configuration_page


def test_the_configuration_page_is_current() -> None:
    assert PAGE.read_text() == configuration_page(), "run `make docs`"
