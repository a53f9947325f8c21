//go:build !unix

package mirror

// lockFolder does nothing where there are no locks that end with the process.
func lockFolder(string) (unlock func(), err error) { return func() {}, nil }
