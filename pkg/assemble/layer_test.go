package assemble

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// readLayer lists a layer's entries with all that goes into its digest but their content.
func readLayer(layer v1.Layer) (string, error) {
	content, err := layer.Uncompressed()
	if err != nil {
		return "", err
	}
	defer content.Close()
	var out strings.Builder
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%c %04o %d:%d %s %s\n", h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.UTC().Format(time.RFC3339), h.Name)
	}
}
