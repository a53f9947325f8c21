package config

import (
	"reflect"
	"slices"
)

// Change is the difference between two Contents. The zero value means that they are equal.
type Change struct {
	// Files lists paths, Units lists names, and the others list values. A unit changes with its drop-ins.
	Files, Units, SSHKeys, KernelArguments, Extensions Set
	OSImage, KernelType                                Step
	// FIPS reports whether FIPS mode is switched on or off.
	FIPS bool
}

// Set is the difference between two lists. Each of its lists is sorted and nil if it is empty.
type Set struct{ Added, Changed, Removed []string }

// Empty reports whether both lists are the same.
func (s Set) Empty() bool { return len(s.Added)+len(s.Changed)+len(s.Removed) == 0 }

// All returns every added, changed and removed element, sorted.
func (s Set) All() []string {
	return slices.Sorted(slices.Values(slices.Concat(s.Added, s.Changed, s.Removed)))
}

// Step is the change of one value. It is zero if the value stays the same.
type Step struct{ From, To string }

// Difference returns the change from one Content to another. Both must come from Decode.
func Difference(from, to Content) Change {
	change := Change{
		Files:           compare(from.Files, to.Files, func(f File) string { return f.Path }),
		Units:           compare(from.Units, to.Units, func(u Unit) string { return u.Name }),
		SSHKeys:         compare(from.SSHKeys, to.SSHKeys, func(key string) string { return key }),
		KernelArguments: compareOrdered(from.KernelArguments, to.KernelArguments),
		Extensions:      compareOrdered(from.Extensions, to.Extensions),
		FIPS:            from.FIPS != to.FIPS,
	}
	if from.OSImage != to.OSImage {
		change.OSImage = Step{from.OSImage, to.OSImage}
	}
	if from.KernelType != to.KernelType {
		change.KernelType = Step{from.KernelType, to.KernelType}
	}
	return change
}

// compare returns the difference between two lists whose elements have unique keys.
func compare[T any](from, to []T, key func(T) string) Set {
	var set Set
	old := make(map[string]T, len(from))
	for _, element := range from {
		old[key(element)] = element
	}
	for _, element := range to {
		earlier, ok := old[key(element)]
		switch {
		case !ok:
			set.Added = append(set.Added, key(element))
		case !reflect.DeepEqual(earlier, element):
			set.Changed = append(set.Changed, key(element))
		}
		delete(old, key(element))
	}
	for k := range old {
		set.Removed = append(set.Removed, k)
	}
	return set.sort()
}

// compareOrdered returns the difference between two lists whose elements may repeat. If only the order differs, all elements have changed.
func compareOrdered(from, to []string) Set {
	var set Set
	count := map[string]int{}
	for _, element := range from {
		count[element]++
	}
	for _, element := range to {
		if count[element]--; count[element] < 0 {
			set.Added = append(set.Added, element)
		}
	}
	for element, n := range count {
		for range n {
			set.Removed = append(set.Removed, element)
		}
	}
	if set.Empty() && !slices.Equal(from, to) {
		set.Changed = slices.Clone(to)
	}
	return set.sort()
}

func (s Set) sort() Set {
	slices.Sort(s.Added)
	slices.Sort(s.Changed)
	slices.Sort(s.Removed)
	return s
}
