package precondition

import "fmt"

// giantHop rejects updates that skip a minor version or change the major version. OpenShift's operator allows one exception, from 4.x to
// 5.0.
func giantHop(in Input) *Objection {
	current, target, objection := versions(in)
	if objection != nil {
		if objection.Warning {
			return objection
		}
		return nil // rollback reports this
	}
	switch {
	case target.Major > current.Major && (current.Major != 4 || target.Major != 5 || target.Minor != 0):
		supported := "within the current major version"
		if current.Major == 4 && target.Major == 5 {
			supported += " or to 5.0"
		}
		return &Objection{
			Reason:  "MajorVersionUpdate",
			Message: fmt.Sprintf("%s has a larger major version than the current target %s (%d > %d), and only updates %s are supported.", target, current, target.Major, current.Major, supported),
		}
	case target.Major == current.Major && target.Minor > current.Minor+1:
		return &Objection{
			Reason:  "MultipleMinorVersionsUpdate",
			Message: fmt.Sprintf("%s is more than one minor version beyond the current target %s (%d.%d > %d.(%d+1)), and only updates within the current minor version or to the next minor version are supported.", target, current, target.Major, target.Minor, current.Major, current.Minor),
		}
	}
	return nil
}
