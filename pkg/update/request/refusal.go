package request

import (
	"fmt"
)

// Refusal is the reason not to send a request: a guard, or an update that is unknown or not recommended.
type Refusal struct{ Err error }

func (e *Refusal) Error() string { return e.Err.Error() }
func (e *Refusal) Unwrap() error { return e.Err }

func refuse(format string, args ...any) error {
	return &Refusal{fmt.Errorf(format, args...)}
}
