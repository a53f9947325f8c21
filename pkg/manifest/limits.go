package manifest

// Limits bounds the cost of parsing one file. The zero value selects the defaults, which are at least twice what real releases need.
type Limits struct {
	// FileBytes limits the size of a file; default 8 MiB.
	FileBytes int
	// Documents limits the number of objects in a file, including the items of lists; default 2000.
	Documents int
	// Depth limits the nesting of maps and lists in an object; default 128.
	Depth int
	// ObjectBytes limits the size of an object as compact JSON with expanded aliases; default 1.5 MiB, the limit of an etcd request.
	ObjectBytes int
}

// WithDefaults returns the limits with every zero replaced by its default.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&l.FileBytes, 8 << 20},
		{&l.Documents, 2000},
		{&l.Depth, 128},
		{&l.ObjectBytes, 3 << 19},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}
