package cli

import "runtime/debug"

// version is what the linker stamps into released binaries (-X, see the Makefile); nothing in the program writes it.
var version string

// binaryVersion is the stamped version, else the one that the go command recorded, such as for `go install`.
func binaryVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
