package input

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

const (
	// maxStreamBytes is the maximum size of an image stream. A release's image stream has 90 kB, with history a few hundred.
	maxStreamBytes = 16 << 20
	// streamTimeout is the time limit for downloading an image stream from a URL.
	streamTimeout = time.Minute
)

// StreamFile is the location of an image stream.
type StreamFile struct {
	// Name is a file, an http or https URL, or - for Input.
	Name  string
	Input io.Reader
	// Insecure allows HTTP, and HTTPS without certificate checks.
	Insecure bool
	// Authority is a file with trusted certificates that replace the system's; may be empty.
	Authority string
}

// Read reads the image stream.
func (f StreamFile) Read(ctx context.Context) (*imagev1.ImageStream, error) {
	data, err := f.content(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading --from-image-stream-file: %w", err)
	}
	stream, err := ParseImageStream(data)
	if err != nil {
		return nil, fmt.Errorf("--from-image-stream-file %s: %w", f.Name, err)
	}
	return stream, nil
}

func (f StreamFile) content(ctx context.Context) ([]byte, error) {
	if f.Name == "-" {
		return readBounded(f.Input)
	}
	if u, err := url.Parse(f.Name); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return f.download(ctx, u)
	}
	file, err := os.Open(f.Name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readBounded(file)
}

func (f StreamFile) download(ctx context.Context, u *url.URL) ([]byte, error) {
	host := u.Hostname()
	if u.Scheme == "http" && !f.Insecure && host != "localhost" && host != "127.0.0.1" && host != "::1" {
		return nil, fmt.Errorf("%s does not use TLS, so an attacker could inject images into the release: use https, or add --insecure", u.Redacted())
	}
	authorities, err := f.authorities()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // its documented type
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.Insecure, RootCAs: authorities}
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: redirect.Judge(transport)}
	if !f.Insecure {
		client = redirect.Safe(client)
	}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s responded with %s", u.Redacted(), response.Status)
	}
	return readBounded(response.Body)
}

// authorities returns the certificates in Authority; nil, for the system's, if there is no file.
func (f StreamFile) authorities() (*x509.CertPool, error) {
	if f.Authority == "" {
		return nil, nil
	}
	bundle, err := inputfile.Read(f.Authority)
	if err != nil {
		return nil, fmt.Errorf("reading --certificate-authority: %w", err)
	}
	pool, err := registry.Authorities(bundle)
	if err != nil {
		return nil, fmt.Errorf("--certificate-authority %s: %w", f.Authority, err)
	}
	return pool, nil
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxStreamBytes+1))
	if err == nil && len(data) > maxStreamBytes {
		err = fmt.Errorf("it has more than %d bytes", maxStreamBytes)
	}
	return data, err
}
