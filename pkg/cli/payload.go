package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/folder"
	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/oci/retrieve"
)

// newPayloadCmd returns the hidden command that the operator's own pods run.
func newPayloadCmd(streams command.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:    strings.Join(retrieve.Command()[:1], " "),
		Short:  "Commands for the operator's own pods",
		Hidden: true,
		Args:   command.UsageArgs(cobra.NoArgs),
	}
	cmd.AddCommand(newPayloadSendCmd(streams))
	return cmd
}

type payloadSendOptions struct {
	folder, server, fingerprint, tokenFile string
	timeout                                time.Duration
}

func newPayloadSendCmd(streams command.Streams) *cobra.Command {
	o := &payloadSendOptions{}
	cmd := &cobra.Command{
		Use:   retrieve.Command()[1] + " --folder DIR --server URL --fingerprint KEY --token-file FILE",
		Short: "Send the manifests of a mounted release image to the operator",
		Long: `Send the files in manifests/ and release-manifests/ of a mounted release image to the operator that requested them. The pods
of the Jobs that 'cvo start --payload-retrieval=job' creates run this command.`,
		Example: `  cvo payload send --folder /release --server https://10.0.0.7:9099/retrieval/version-1.1.0-0a1b2c3d4e \
    --fingerprint GZr2n0… --token-file /etc/retrieval/token`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.folder, retrieve.FolderFlag, "", "`folder` where the release image is mounted (required)")
	f.StringVar(&o.server, retrieve.ServerFlag, "", "`URL` to send to (required)")
	f.StringVar(&o.fingerprint, retrieve.FingerprintFlag, "", "`fingerprint` of the operator's key (required)")
	f.StringVar(&o.tokenFile, retrieve.TokenFileFlag, "", "`file` with the one-time token (required)")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to retry")
	return cmd
}

// maxToken is the maximum size of the token in bytes.
const maxToken = 4 << 10

func (o *payloadSendOptions) run(ctx context.Context, streams command.Streams) error {
	if o.folder == "" || o.server == "" || o.fingerprint == "" || o.tokenFile == "" {
		return &command.UsageError{Err: errors.New("--folder, --server, --fingerprint and --token-file are required: the operator sets them in the pods of its Jobs")}
	}
	token, err := inputfile.Read(o.tokenFile)
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	if len(token) > maxToken {
		return fmt.Errorf("reading the token: %s has %d bytes and is not a token", o.tokenFile, len(token))
	}
	config, err := serve.Trust{Fingerprint: o.fingerprint}.TLS()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	client := &http.Client{
		// The transport ignores proxies from the environment, because the operator is in the same cluster.
		Transport:     &http.Transport{TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	files, err := folder.Open(o.folder)
	if err != nil {
		return err
	}
	if err := retrieve.Send(ctx, client, o.server, strings.TrimSpace(string(token)), files); err != nil {
		return err
	}
	fmt.Fprintln(streams.Err, "sent")
	return nil
}
