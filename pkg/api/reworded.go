package api

// Reworded returns an error that reads as text does and is all that err is in the sense of errors.Is and errors.As: for
// conditions and logs, where the same failure has to read the same each time, on one line of a bounded length.
func Reworded(err error, text string) error { return &reworded{text, err} }

type reworded struct {
	text string
	err  error
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.err }
