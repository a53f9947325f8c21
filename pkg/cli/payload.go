package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/operator"
	"github.com/cluster-version/cvo/pkg/retrieve"
)

// newPayloadCmd has what the operator's own pods run; nobody types it.
func newPayloadCmd(streams Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:    strings.Join(retrieve.Command()[:1], " "),
		Short:  "What the operator's own pods run",
		Hidden: true,
		Args:   usageArgs(cobra.NoArgs),
	}
	cmd.AddCommand(newPayloadSendCmd(streams))
	return cmd
}

type payloadSendOptions struct {
	folder, server, fingerprint, tokenFile string
	timeout                                time.Duration
}

func newPayloadSendCmd(streams Streams) *cobra.Command {
	o := &payloadSendOptions{}
	cmd := &cobra.Command{
		Use:   retrieve.Command()[1] + " --folder DIR --server URL --fingerprint KEY --token-file FILE",
		Short: "Send the manifests of a mounted release image to the operator",
		Long: `Send the files in manifests/ and release-manifests/ of a release image that is mounted here to the operator that asked for
them. The pods of the Jobs that 'cvo start --payload-retrieval=job' makes run this.`,
		Example: `  cvo payload send --folder /release --server https://10.0.0.7:9099/retrieval/version-1.1.0-0a1b2c3d4e \
    --fingerprint GZr2n0… --token-file /etc/retrieval/token`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	f.StringVar(&o.folder, retrieve.FolderFlag, "", "`folder` where the release image is mounted (required)")
	f.StringVar(&o.server, retrieve.ServerFlag, "", "`URL` to send to (required)")
	f.StringVar(&o.fingerprint, retrieve.FingerprintFlag, "", "`fingerprint` of the operator's key (required)")
	f.StringVar(&o.tokenFile, retrieve.TokenFileFlag, "", "`file` with the token that opens the way once (required)")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to try")
	return cmd
}

// maxToken bounds the token that is read.
const maxToken = 4 << 10

func (o *payloadSendOptions) run(ctx context.Context, streams Streams) error {
	if o.folder == "" || o.server == "" || o.fingerprint == "" || o.tokenFile == "" {
		return &UsageError{errors.New("--folder, --server, --fingerprint and --token-file are all needed: the operator gives them to the pods of its Jobs")}
	}
	token, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	if len(token) > maxToken {
		return fmt.Errorf("reading the token: %s has %d bytes, which is no token", o.tokenFile, len(token))
	}
	config, err := operator.Trust{Fingerprint: o.fingerprint}.TLS()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	client := &http.Client{
		// The operator is reached inside the cluster, whatever proxy leads out of it.
		Transport:     &http.Transport{TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if err := retrieve.Send(ctx, client, o.server, strings.TrimSpace(string(token)), os.DirFS(o.folder)); err != nil {
		return err
	}
	fmt.Fprintln(streams.Err, "sent")
	return nil
}
