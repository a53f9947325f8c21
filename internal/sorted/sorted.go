// Package sorted sorts slices of structs.
package sorted

import "sort"

// By sorts a slice in place and keeps the order of equal elements. All types share its code. Go compiles the sorts of package slices once
// for each type of struct, and each copy needs 12 to 30 kB of the binary.
func By[T any](s []T, compare func(a, b T) int) {
	sort.SliceStable(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}
