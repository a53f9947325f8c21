package upgrade

import (
	"strings"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// checkPullspec rejects text that is not the pullspec of a release. For example, a version is a valid image name.
func checkPullspec(pullspec string) error {
	const invalid = "--to-image must be a valid image pull spec: "
	if _, err := new(registry.Access).Reference(pullspec); err != nil {
		return command.Usagef(invalid+"%w", err)
	}
	slash := strings.LastIndex(pullspec, "/")
	name := pullspec[slash+1:]
	switch {
	case slash < 0:
		return command.Usagef(invalid + "no registry or repository specified")
	case strings.Contains(name, "@"):
		return nil
	case !strings.Contains(name, ":"):
		return command.Usagef(invalid + "no tag or digest specified")
	}
	return nil
}

func byTag(pullspec string) bool { return !release.Pullspec(pullspec).HasDigest() }
