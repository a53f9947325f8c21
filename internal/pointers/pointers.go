// Package pointers takes a slice of values, such as the items of a list of the API, and returns pointers to its elements.
package pointers

// To returns a pointer to each element, in the same order. The elements are not copied.
func To[T any](values []T) []*T {
	out := make([]*T, len(values))
	for i := range values {
		out[i] = &values[i]
	}
	return out
}
