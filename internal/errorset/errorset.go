// Package errorset joins the errors of many independent checks or requests. It takes errors in any order, such as that of goroutines or
// maps, and returns one error that always reads the same.
package errorset

import (
	"errors"
	"slices"
	"strings"
)

// Join joins the distinct errors, sorted by text. It drops nil errors and returns nil if there are no others.
func Join(errs []error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(slices.CompactFunc(errs, func(a, b error) bool { return a.Error() == b.Error() })...)
}

// Split returns the errors that were joined in err or in an error that it wraps, without the text of the wrapping errors. It returns err
// itself if nothing was joined, and nothing for nil.
func Split(err error) []error {
	for wrapped := err; wrapped != nil; wrapped = errors.Unwrap(wrapped) {
		joined, ok := wrapped.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, Split(one)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
