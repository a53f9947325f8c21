package api

// Reworded returns an error with the given text that still wraps err for errors.Is and errors.As. Use it for conditions and logs, where the
// same failure must always have the same text, on one line of limited length.
func Reworded(err error, text string) error { return &reworded{text, err} }

type reworded struct {
	text string
	err  error
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.err }
