// Command image packs the operator's image without a container engine: the binary, the certificates of this machine and
// the operator's manifests. hack/image.sh calls it; the result is what the Dockerfile describes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/registry"
)

// bundles are where systems keep the certificates of authorities.
var bundles = [...]string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

func main() {
	binary := flag.String("binary", "", "static cvo for linux")
	arch := flag.String("arch", runtime.GOARCH, "its architecture")
	layout := flag.String("to-oci", "", "OCI layout to write to")
	as := flag.String("as", "latest", "name of the image in the layout")
	push := flag.String("to-image", "", "tag in a registry to push to")
	flag.Parse()
	if err := run(context.Background(), *binary, *arch, *layout, *as, *push); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, arch, layout, as, push string) error {
	if !manifests.Complete() {
		return errors.New("the CustomResourceDefinitions are missing: run go generate ./manifests")
	}
	opts := assemble.OperatorImageOptions{Architecture: arch}
	var err error
	if opts.Binary, err = os.ReadFile(binary); err != nil {
		return err
	}
	if opts.Certificates, err = certificates(); err != nil {
		return err
	}
	if opts.Manifests, err = assemble.ReadFiles(manifests.FS()); err != nil {
		return err
	}
	if opts.Created, err = created(); err != nil {
		return err
	}
	img, err := assemble.OperatorImage(opts)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	if layout != "" {
		if err := assemble.WriteLayout(img, layout, as); err != nil {
			return err
		}
		fmt.Println(layout + "@" + digest.String())
	}
	if push != "" {
		pushed, err := assemble.Push(ctx, registry.New(registry.Options{}), img, push)
		if err != nil {
			return err
		}
		fmt.Println(pushed.ByDigest())
	}
	return nil
}

func certificates() ([]byte, error) {
	files := bundles[:]
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		files = []string{file}
	}
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			return data, nil
		}
	}
	return nil, fmt.Errorf("none of %v is there: name a file of certificates in SSL_CERT_FILE", files)
}

// created is SOURCE_DATE_EPOCH (reproducible-builds.org), or the beginning of Unix time.
func created() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Unix(0, 0), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0), nil
}
