package registry

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cluster-version/cvo/pkg/oci/registry/location"
)

// Candidates returns the references from which the content of ref may be fetched, in order: first the mirrors, then ref itself. It returns
// none if the mirror sets forbid the source and list no usable mirror. A mirror gets the same security checks as any other registry.
func (a *Access) Candidates(ref name.Reference) []name.Reference {
	mirrors, source := a.opts.Mirrors.Locations(ref)
	if len(mirrors) == 0 && source {
		return []name.Reference{ref}
	}
	own := location.Normalize(ref.Context().Name())
	candidates := make([]name.Reference, 0, len(mirrors)+1)
	for _, mirror := range mirrors {
		if mirror == own {
			candidates = append(candidates, ref)
			continue
		}
		if elsewhere, err := a.at(ref, mirror); err == nil { // mirrorset.New has validated the location
			candidates = append(candidates, elsewhere)
		}
	}
	if source {
		candidates = append(candidates, ref)
	}
	return candidates
}

// at returns ref in another repository. The library's parser is unsuitable: it interprets a host without dots as part of a Docker Hub
// repository.
func (a *Access) at(ref name.Reference, mirror string) (name.Reference, error) {
	host, path, _ := strings.Cut(mirror, "/")
	registry, err := a.registry(host)
	if err != nil {
		return nil, err
	}
	if digest, ok := ref.(name.Digest); ok {
		return registry.Repo(path).Digest(digest.DigestStr()), nil
	}
	return registry.Repo(path).Tag(ref.Identifier()), nil
}
