// Package inputfile reads the files that a user names in flags and settings: keys, tokens, policies, certificates. The file may
// be a pipe. It may also be a device without end, so the package reads a limited number of bytes.
package inputfile

import (
	"fmt"
	"io"
	"os"
)

// Max is the size of the largest file in bytes. etcd stores objects of 1.5 MiB at most, so a cluster could not hold more either.
const Max = 4 << 20

// Read returns the content of a file. The error names the file; it is an error if the file has more than Max bytes.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, Max+1))
	if err != nil {
		return nil, err
	}
	if len(data) > Max {
		return nil, fmt.Errorf("%s has more than %d MiB: name another file", path, Max>>20)
	}
	return data, nil
}
