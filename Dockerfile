# The operator's image, which release images are built on (cvo release new --to-image-base). `make image` builds it for
# several architectures, also without a container engine: pkg/author/assemble/program describes the same image.
ARG BUILDER=docker.io/library/golang:1.26
FROM --platform=$BUILDPLATFORM $BUILDER AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The described definitions of ClusterVersion and ClusterOperator come from the API module, before the binary, which
# embeds them. The root certificates come from a module, too.
RUN go generate ./manifests \
 && install -d -m 755 /out/etc/ssl/certs /out/manifests \
 && go run ./hack/image -root-certificates /out/ca-certificates.crt \
 && install -m 444 /out/ca-certificates.crt /out/etc/ssl/certs/ \
 && install -m 444 manifests/0000_*.yaml /out/manifests/ \
 && install -m 444 manifests/described/*.yaml /out/manifests/ \
 && go run ./hack/overlay /overlay/overlay.json
ARG VERSION=unknown
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH GOAMD64=v1 GOARM64=v8.0 GOFLAGS=-mod=readonly \
      go build -trimpath -buildvcs=false -overlay /overlay/overlay.json -ldflags "-s -w -X github.com/cluster-version/cvo/pkg/cli.version=$VERSION" \
      -o /out/cvo ./cmd/cvo

FROM scratch
COPY --from=build /out/etc /etc
COPY --from=build /out/cvo /cvo
COPY --from=build /out/manifests /manifests
WORKDIR /
ENV PATH=/
USER 65532:65532
ENTRYPOINT ["/cvo"]
ARG VERSION=unknown
ARG REVISION=
LABEL io.k8s.description="Installs and updates a platform from signed release images." \
      io.k8s.display-name="Cluster Version Operator" \
      org.opencontainers.image.description="Installs and updates a platform from signed release images." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="https://github.com/cluster-version/cvo" \
      org.opencontainers.image.title="Cluster Version Operator" \
      org.opencontainers.image.version="$VERSION"
