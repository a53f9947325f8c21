package manifest

// Limits bound what parsing one file may cost. The zero value stands for the defaults, which leave real releases at
// least twice the room they use.
type Limits struct {
	// FileBytes bounds one file; default 8 MiB.
	FileBytes int
	// Documents bounds the objects of one file, items of lists included; default 2000.
	Documents int
	// Depth bounds how deep maps and lists nest in one object; default 128.
	Depth int
	// ObjectBytes bounds one object as compact JSON, after aliases are expanded; default 1.5 MiB, above which etcd
	// refuses to store it.
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
