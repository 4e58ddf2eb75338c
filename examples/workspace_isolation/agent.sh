# A very small agent: it knows three prompts, and works in the folder that it is started in.
case "$WHET_PROMPT" in
    Rename*) mv src/greeting.txt src/farewell.txt; echo "Renamed." ;;
    Let*) echo "Hello, world" > src/greeting.txt; echo "Edited." ;;
    *) cat src/greeting.txt ;;
esac
