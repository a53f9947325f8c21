package apiserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// readyPatience is the timeout of a request for /readyz, and readyAnswer the maximum length of the answer. It lists about 50 checks.
const (
	readyPatience = 3 * time.Second
	readyAnswer   = 64 << 10
)

// Ready returns why an API server is not ready, by its /readyz. That has a check of etcd. It returns nil if the server is ready. address has
// the host and port of one of several servers, whose certificate must be valid for the host in cfg; empty for that host. The error of a
// repeated failure has the same text.
func Ready(ctx context.Context, cfg *rest.Config, address string) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	url, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return fmt.Errorf("preparing TLS: %w", err)
	}
	var dialer net.Dialer
	transport := &http.Transport{
		TLSClientConfig:   tls,
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, named string) (net.Conn, error) {
			if address != "" {
				named = address
			}
			return dialer.DialContext(ctx, network, named)
		},
	}
	switch {
	case address != "": // a proxy would choose the server
	case cfg.Proxy != nil:
		transport.Proxy = cfg.Proxy
	default:
		transport.Proxy = http.ProxyFromEnvironment
	}
	authenticated, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return fmt.Errorf("preparing authentication: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url.JoinPath("readyz").String(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := authenticated.RoundTrip(request)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", readyPatience)
	}
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return operation.Err // the other text has our port
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired { // the other text has the current time
		return fmt.Errorf("x509: certificate has expired or is not yet valid: it is valid from %s to %s",
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	answer, _ := io.ReadAll(io.LimitReader(response.Body, readyAnswer)) // a part of it is better than an error
	return fmt.Errorf("/readyz answers %d%s", response.StatusCode, failedChecks(string(answer)))
}

// failedChecks returns the failed checks of an answer, such as ": etcd failed".
func failedChecks(answer string) string {
	var names []string
	for line := range strings.Lines(answer) {
		if check, failed := strings.CutPrefix(line, "[-]"); failed {
			name, _, _ := strings.Cut(check, " ")
			names = append(names, strings.TrimSpace(name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ") + " failed"
}
