package document

import (
	"bytes"
	"fmt"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var groupVersion = apidiscoveryv2.SchemeGroupVersion

// newCodecs returns what encodes documents and errors, in the media types that
// upstream's discovery has.
func newCodecs(withCBOR bool) serializer.CodecFactory {
	scheme := runtime.NewScheme()
	utilruntime.Must(apidiscoveryv2.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if withCBOR {
		return serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
	}
	return serializer.NewCodecFactory(scheme)
}

// format is one way to write a document.
type format struct {
	// negotiated is the serializer that content negotiation ends with.
	negotiated runtime.Serializer
	// encoder writes objects as they are, their type included.
	encoder runtime.Encoder
	// plain and aggregated are the values of the header Content-Type, of legacy
	// and of aggregated discovery.
	plain, aggregated []string
}

func newFormats(codecs serializer.CodecFactory) []format {
	var formats []format
	for _, info := range codecs.SupportedMediaTypes() {
		for _, s := range []runtime.Serializer{info.Serializer, info.PrettySerializer} {
			if s == nil {
				continue
			}
			formats = append(formats, format{
				negotiated: s,
				encoder:    s,
				plain:      []string{info.MediaType},
				aggregated: []string{fmt.Sprintf("%s;g=%s;v=%s;as=%s", info.MediaType, groupVersion.Group, groupVersion.Version, Aggregated)},
			})
		}
	}
	return formats
}

func (s *Server) formatOf(negotiated runtime.Serializer) int {
	return slices.IndexFunc(s.formats, func(f format) bool { return f.negotiated == negotiated })
}

func (f *format) encode(obj runtime.Object) ([]byte, error) {
	var data bytes.Buffer
	if err := f.encoder.Encode(obj, &data); err != nil {
		return nil, fmt.Errorf("encoding the merged document as %s: %w", f.plain[0], err)
	}
	return data.Bytes(), nil
}

// contentType is the header's value for a kind of document.
func (f *format) contentType(kind Kind) []string {
	if kind == Aggregated {
		return f.aggregated
	}
	return f.plain
}
