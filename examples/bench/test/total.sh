test "$(sh src/total.sh 1 2 3)" = 6
