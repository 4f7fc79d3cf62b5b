# SPDX-License-Identifier: GPL-2.0
#
# awk -f pyverbs.awk EXPECTED... RESULT: prints the tests that are worse than expected, and how many
# ended how. Fails if one is worse.

FILENAME != ARGV[ARGC - 1] { expected[$2] = $1; next }
{ got[$2] = $1; count[$1]++ }
($1 == "ERROR" || $1 == "FAIL") && expected[$2] != "ERROR" && expected[$2] != "FAIL" {
	print $2 ": " $1 ", expected was " expected[$2]; bad++
}
END {
	for (test in expected)
		if (expected[test] == "ok" && got[test] != "ok" && got[test] != "ERROR" && got[test] != "FAIL") {
			print test ": " (test in got ? got[test] : "did not run") ", expected was ok"; bad++
		}
	for (status in count)
		print status, count[status]
	exit bad > 0
}
