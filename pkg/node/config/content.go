package config

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/cluster-version/cvo/internal/sorted"
)

// maxData is the limit for the decompressed data of all files of a MachineConfig, in bytes. A MachineConfig has at most 1.5 MiB, which could
// decompress to 1.5 GiB.
const maxData = 16 << 20

var errTooLarge = errors.New("the data is too large")

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

// BootsLike reports whether a host boots with the same in both contents: kernel arguments and image.
func (c Content) BootsLike(other Content) bool {
	return c.OSImage == other.OSImage && slices.Equal(c.KernelArguments, other.KernelArguments)
}

// KubeletFile is the begin of the names of the files with the settings of a KubeletConfig. The kubelet merges files in the order of their names, so the
// prefix 99 lets them override the files of a distribution.
const KubeletFile = "99-kubeletconfig-"

// KubeletFolder returns the folder of the content's files with the settings of KubeletConfigs; empty if there is none. isNew reports whether the content
// itself names the kubelet's flag for that folder, so that the running kubelet may not have it yet.
func (c Content) KubeletFolder() (folder string, isNew bool) {
	names := func(text string) bool { return strings.Contains(text, "--config-dir") }
	for _, f := range c.Files {
		if strings.HasPrefix(path.Base(f.Path), KubeletFile) {
			folder = path.Dir(f.Path)
		}
		isNew = isNew || names(string(f.Data))
	}
	for _, u := range c.Units {
		isNew = isNew || names(u.Contents) || slices.ContainsFunc(u.DropIns, func(d DropIn) bool { return names(d.Contents) })
	}
	return folder, isNew
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

// Decode returns the content of a rendered MachineConfig. It checks the MachineConfig as Validate does, and that its name has the hash of its
// content: another client may have changed it since Render made it. Errors are of type *Error.
func Decode(rendered *mcfgv1.MachineConfig) (Content, error) {
	config, err := checker{name: rendered.Name}.machineConfig(rendered.Spec)
	if err != nil {
		return Content{}, err
	}
	spec := rendered.Spec
	if spec.Config.Raw, err = json.Marshal(config); err != nil { // the API server orders keys in another way
		return Content{}, fmt.Errorf("encoding the Ignition config after its validation: %w", err)
	}
	if hash, err := hashOf(spec); err != nil {
		return Content{}, err
	} else if !strings.HasSuffix(rendered.Name, "-"+hash) {
		return Content{}, &Error{
			Name: rendered.Name, Path: "spec", Problem: "was changed after the controller rendered it",
			Remedy: "delete the MachineConfig, so that the controller renders it again",
		}
	}
	content := Content{
		KernelArguments: slices.Clone(spec.KernelArguments), Extensions: slices.Clone(spec.Extensions), FIPS: spec.FIPS, OSImage: spec.OSImageURL,
	}
	if spec.KernelType != "default" {
		content.KernelType = spec.KernelType
	}
	for _, file := range config.Storage.Files {
		data, err := decode(file.Contents, maxData)
		if err != nil {
			return Content{}, fmt.Errorf("decoding %q after its validation: %w", file.Path, err)
		}
		decoded := File{Path: file.Path, Mode: 0o644, Data: data, User: owner(file.User.ID, file.User.Name), Group: owner(file.Group.ID, file.Group.Name)}
		if file.Mode != nil {
			decoded.Mode = fs.FileMode(*file.Mode)
		}
		content.Files = append(content.Files, decoded)
	}
	for _, unit := range config.Systemd.Units {
		decoded := Unit{Name: unit.Name, Contents: value(unit.Contents), Enabled: unit.Enabled, Mask: unit.Mask}
		for _, dropIn := range unit.Dropins {
			if text := value(dropIn.Contents); text != "" {
				decoded.DropIns = append(decoded.DropIns, DropIn{dropIn.Name, text})
			}
		}
		sorted.By(decoded.DropIns, func(a, b DropIn) int { return cmp.Compare(a.Name, b.Name) })
		content.Units = append(content.Units, decoded)
	}
	for _, user := range config.Passwd.Users {
		for _, key := range user.SSHAuthorizedKeys {
			content.SSHKeys = append(content.SSHKeys, string(key))
		}
	}
	sorted.By(content.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	sorted.By(content.Units, func(a, b Unit) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(content.SSHKeys)
	return content, nil
}

func owner(id *int, name *string) Owner {
	o := Owner{Name: value(name)}
	if id != nil {
		o.ID = *id
	}
	return o
}

func value(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// decode returns the data of a resource, which is empty without a source. Its error is errTooLarge if the
// data has more bytes than the limit. The rules for data URLs are those of Ignition's parser, without quoted and escaped parameters.
func decode(resource types.Resource, limit int) ([]byte, error) {
	if value(resource.Source) == "" {
		return []byte{}, nil
	}
	text, ok := strings.CutPrefix(*resource.Source, "data:")
	if !ok {
		return nil, fmt.Errorf("its source %s is not a data URL", quote(*resource.Source))
	}
	header, text, ok := strings.Cut(text, ",")
	if !ok || strings.ContainsAny(header, `%"\`) {
		return nil, errors.New("its source is not a valid data URL")
	}
	var data []byte
	var err error
	if _, isBase64 := strings.CutSuffix(header, ";base64"); isBase64 {
		data, err = base64.StdEncoding.DecodeString(text)
	} else {
		text, err = url.PathUnescape(text)
		data = []byte(text)
	}
	if err != nil {
		return nil, fmt.Errorf("its data URL does not decode: %w", err)
	}
	if value(resource.Compression) == "gzip" {
		reader, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("its data is not gzip: %w", err)
		}
		data, err = io.ReadAll(io.LimitReader(reader, int64(limit)+1))
		if err != nil {
			return nil, fmt.Errorf("its data does not decompress: %w", err)
		}
	}
	if len(data) > limit {
		return nil, errTooLarge
	}
	return data, nil
}
