package config

import "io/fs"

// Content is the decoded content of a rendered MachineConfig: the intended state of a host.
type Content struct {
	// Files are sorted by path, Units by name and SSHKeys as text. The keys belong to user core.
	Files   []File
	Units   []Unit
	SSHKeys []string
	// KernelArguments are in the order of the kernel's command line. The same argument may occur more than once.
	KernelArguments []string
	Extensions      []string
	// KernelType is the kernel's variant, such as realtime. It is empty for the default kernel.
	KernelType string
	FIPS       bool
	// OSImage is the image of the operating system by pullspec. It is empty if no release and no MachineConfig sets it.
	OSImage string
}

// File is a file on a host.
type File struct {
	// Path is absolute, without "." and "..".
	Path string
	// Mode has only permission bits. The default is 0644.
	Mode fs.FileMode
	// User and Group own the file. The zero value is root.
	User, Group Owner
	Data        []byte
}

// Owner is a user or a group: by ID, or by name if Name is not empty.
type Owner struct {
	ID   int
	Name string
}

// Unit is a systemd unit.
type Unit struct {
	// Name has a suffix such as .service.
	Name string
	// Contents is the text of the unit's file. If it is empty, the operating system provides the file.
	Contents string
	// Enabled enables the unit, or disables it if false. Mask masks the unit, or unmasks it if false. Nil keeps the state of the host.
	Enabled, Mask *bool
	// DropIns are sorted by name. None is empty.
	DropIns []DropIn
}

// DropIn is a file in the folder NAME.d of a unit.
type DropIn struct{ Name, Contents string }
