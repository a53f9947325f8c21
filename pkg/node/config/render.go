// Package config merges the MachineConfigs of a pool into one rendered MachineConfig, and decodes that one for hosts. MachineConfigs and the
// image of the operating system are the only inputs. Validation rejects configs that Ignition accepts but a running host cannot apply, or
// could be harmed by. The package neither reads the cluster nor touches a host: controllers store rendered MachineConfigs and assign them to
// nodes, and the daemon on a node applies the content.
package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
)

// MaxSize is the largest rendered MachineConfig, in bytes of JSON. It is the default limit of etcd for a request.
const MaxSize = 1_572_864

// ErrNoConfigs is the error for a pool without MachineConfigs.
var ErrNoConfigs = errors.New("no MachineConfig matches the pool; correct its machineConfigSelector")

// Render merges the MachineConfigs of a pool. Its result has the name rendered-POOL-HASH, where the hash depends only on the content: the
// same content always has the same name. osImage is the image of the release, by pullspec, or empty.
//
// MachineConfigs with the role worker merge first, so that a custom pool can override the configuration of the workers. Within a role the
// names determine the order. For a file, a unit or a drop-in, the later MachineConfig decides about each field that it sets; contents, user
// and group of a file are one field each. Kernel arguments and extensions are concatenated. The last kernel type other than the default
// decides. Only a user's MachineConfig can replace osImage: one that a controller made could still carry the image of an earlier release.
//
// Errors are of type *Error, or ErrNoConfigs. Render does not change its inputs.
func Render(pool string, configs []*mcfgv1.MachineConfig, osImage string) (*mcfgv1.MachineConfig, error) {
	if len(configs) == 0 {
		return nil, ErrNoConfigs
	}
	configs = slices.Clone(configs)
	slices.SortFunc(configs, func(a, b *mcfgv1.MachineConfig) int {
		return cmp.Or(cmp.Compare(layer(a), layer(b)), cmp.Compare(a.Name, b.Name))
	})
	spec := mcfgv1.MachineConfigSpec{OSImageURL: osImage, KernelType: "default", KernelArguments: []string{}, Extensions: []string{}}
	var merged types.Config
	var all []place
	overridden := false
	for _, mc := range configs {
		check := checker{name: mc.Name}
		config, err := check.machineConfig(mc.Spec)
		if err != nil {
			return nil, err
		}
		all = append(all, check.places(config)...)
		merged = merge(merged, config)

		spec.FIPS = spec.FIPS || mc.Spec.FIPS
		spec.KernelArguments = append(spec.KernelArguments, mc.Spec.KernelArguments...)
		spec.Extensions = append(spec.Extensions, mc.Spec.Extensions...)
		if mc.Spec.KernelType != "" && mc.Spec.KernelType != "default" {
			spec.KernelType = mc.Spec.KernelType
		}
		if _, generated := mc.Annotations[api.GeneratedByAnnotation]; generated {
			continue
		}
		spec.BaseOSExtensionsContainerImage = cmp.Or(mc.Spec.BaseOSExtensionsContainerImage, spec.BaseOSExtensionsContainerImage)
		if mc.Spec.OSImageURL != "" {
			spec.OSImageURL, overridden = mc.Spec.OSImageURL, true
		}
	}
	if err := conflict(all); err != nil {
		return nil, err
	}
	if err := complete(&merged, all); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("encoding the merged Ignition config: %w", err)
	}
	spec.Config.Raw = raw
	return finish(pool, spec, overridden, configs)
}

// layer is 0 for MachineConfigs with the role worker, which merge first, and 1 for all others.
func layer(mc *mcfgv1.MachineConfig) int {
	if mc.Labels[mcfgv1.MachineConfigRoleLabelKey] == "worker" {
		return 0
	}
	return 1
}

// merge returns a config with the changes of a later one. Ignition merges every field of a file separately. That would combine the
// compression of one config with the contents of the other, and an ID with a name. So merge first clears contents, user and group that the
// later config sets.
func merge(config, later types.Config) types.Config {
	index := make(map[string]types.File, len(later.Storage.Files))
	for i := range later.Storage.Files {
		file := &later.Storage.Files[i]
		if file.Contents.Source == nil {
			file.Contents = types.Resource{}
		}
		index[file.Path] = *file
	}
	config.Storage.Files = slices.Clone(config.Storage.Files)
	for i := range config.Storage.Files {
		file := &config.Storage.Files[i]
		change, ok := index[file.Path]
		if !ok {
			continue
		}
		if change.Contents.Source != nil {
			file.Contents = types.Resource{}
		}
		if change.User != (types.NodeUser{}) {
			file.User = types.NodeUser{}
		}
		if change.Group != (types.NodeGroup{}) {
			file.Group = types.NodeGroup{}
		}
	}
	return v3_5.Merge(config, later)
}

// complete brings a merged config into its canonical form: the order of files, units and keys does not depend on the names of
// MachineConfigs, and all files replace existing ones. A file needs contents from one of the MachineConfigs, because a host would otherwise
// empty an existing file.
func complete(config *types.Config, all []place) error {
	replace := true
	for i := range config.Storage.Files {
		file := &config.Storage.Files[i]
		file.Overwrite = &replace
		if file.Contents.Source != nil {
			continue
		}
		at := all[slices.IndexFunc(all, func(p place) bool { return p.path == file.Path })]
		return checker{name: at.owner}.errorf(at.field+".contents.source", `set it to a data URL; "data:," is an empty file`, "is missing for %s", quote(file.Path))
	}
	sorted.By(config.Storage.Files, func(a, b types.File) int { return cmp.Compare(a.Path, b.Path) })
	config.Systemd.Units = slices.Clone(config.Systemd.Units)
	sorted.By(config.Systemd.Units, func(a, b types.Unit) int { return cmp.Compare(a.Name, b.Name) })
	for i := range config.Systemd.Units {
		unit := &config.Systemd.Units[i]
		unit.Dropins = slices.Clone(unit.Dropins)
		sorted.By(unit.Dropins, func(a, b types.Dropin) int { return cmp.Compare(a.Name, b.Name) })
	}
	for _, user := range config.Passwd.Users {
		slices.Sort(user.SSHAuthorizedKeys)
	}
	return nil
}

// hashOf returns the hash in the name of the rendered MachineConfig with a spec. The order of fields in Go's structs makes the encoding
// canonical.
func hashOf(spec mcfgv1.MachineConfigSpec) (string, error) {
	canonical, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encoding the merged MachineConfig: %w", err)
	}
	hash := sha256.Sum256(canonical)
	return hex.EncodeToString(hash[:16]), nil
}

// finish returns the rendered MachineConfig for a spec. It fails if the result is too large for the cluster or for a host.
func finish(pool string, spec mcfgv1.MachineConfigSpec, overridden bool, configs []*mcfgv1.MachineConfig) (*mcfgv1.MachineConfig, error) {
	hash, err := hashOf(spec)
	if err != nil {
		return nil, err
	}
	rendered := &mcfgv1.MachineConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: "rendered-" + pool + "-" + hash},
		Spec:       spec,
	}
	if overridden {
		rendered.Annotations = map[string]string{api.OSImageOverriddenAnnotation: "true"}
	}
	whole, err := json.Marshal(rendered)
	if err != nil {
		return nil, fmt.Errorf("encoding the rendered MachineConfig: %w", err)
	}
	if len(whole) > MaxSize {
		largest := slices.MaxFunc(configs, func(a, b *mcfgv1.MachineConfig) int {
			return cmp.Compare(len(a.Spec.Config.Raw), len(b.Spec.Config.Raw))
		})
		return nil, checker{name: rendered.Name}.specErrorf("config", "shrink the MachineConfigs of the pool, of which "+largest.Name+" is the largest",
			"makes it %d bytes large, more than the limit of %d", len(whole), MaxSize)
	}
	_, err = Decode(rendered)
	return rendered, err
}
