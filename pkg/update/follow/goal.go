package follow

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Goals of a wait, as users write them.
const (
	GoalAccepted  = "accepted"
	GoalCompleted = "completed"
	GoalRunlevel  = "runlevel="
)

// Goal is the state that the command waits for.
type Goal struct {
	// Completed and accepted correspond to the values of --for. If neither is set, the goal is a runlevel.
	Completed, accepted bool
	runlevel            int
	FailFast            bool
}

// maxRunlevel is the highest runlevel that a file name can contain.
const maxRunlevel = 9999

// ParseGoal parses accepted, completed or runlevel=N.
func ParseGoal(text string) (Goal, error) {
	switch number, isRunlevel := strings.CutPrefix(text, GoalRunlevel); {
	case text == GoalCompleted:
		return Goal{Completed: true}, nil
	case text == GoalAccepted:
		return Goal{accepted: true}, nil
	case isRunlevel:
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n <= maxRunlevel {
			return Goal{runlevel: n}, nil
		}
	}
	return Goal{}, fmt.Errorf("unknown goal %q: use accepted, completed or runlevel=N, for example runlevel=30", cmp.Or(text, "nothing"))
}
