package registries

import (
	"fmt"
	"os"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/oci/layout"
)

// CheckImages rejects arguments that name neither an image in a registry nor an OCI layout: a version, a file, another folder, or a path
// that does not exist. Each is a usage error. It ignores empty arguments. Callers that also accept folders check for them first.
func CheckImages(refs ...string) error {
	for _, ref := range refs {
		if err := checkImage(ref); err != nil {
			return err
		}
	}
	return nil
}

func checkImage(ref string) error {
	if ref == "" || layout.IsReference(ref) {
		return nil
	}
	info, err := os.Stat(ref)
	_, noVersion := semver.Parse(ref)
	switch {
	case err == nil && !info.IsDir():
		return &command.UsageError{Err: fmt.Errorf("%q is a file: name an image or an OCI layout", ref)}
	case err == nil:
		return &command.UsageError{Err: fmt.Errorf("%q is a folder without an OCI layout: name an image or an OCI layout", ref)}
	case noVersion == nil:
		return &command.UsageError{Err: fmt.Errorf("%q is a version: name its image, such as registry.example/release:%s ('cvo release info %s' shows the image if your cluster knows the version)", ref, ref, ref)}
	case strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "."):
		return &command.UsageError{Err: fmt.Errorf("%s: %w", ref, os.ErrNotExist)}
	case !namesRegistry(ref):
		return &command.UsageError{Err: fmt.Errorf("%q does not exist and names no registry: check the path, or use docker.io/%s for an image on Docker Hub", ref, ref)}
	}
	return nil
}

// namesRegistry reports whether a reference begins with the host of a registry. Without one, Docker Hub is meant, but a mistyped path is
// more likely. See https://github.com/distribution/reference on how the host is recognized.
func namesRegistry(ref string) bool {
	host, _, ok := strings.Cut(ref, "/")
	return ok && (strings.ContainsAny(host, ".:") || host == "localhost")
}
