#!/bin/sh
# Starts Firefox for the tests. Playwright sets a variable that ends the browser when a tab is killed.
unset MOZ_CRASHREPORTER_SHUTDOWN
exec firefox-esr "$@"
