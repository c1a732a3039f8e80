"""All rings of kclient's tests; see CONTRIBUTING.md for which ring a new test belongs to."""
