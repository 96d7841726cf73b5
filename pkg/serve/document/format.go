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
// upstream's aggregated discovery has.
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
	encoder    runtime.Encoder
	// contentType is the header's value.
	contentType []string
}

func newFormats(codecs serializer.CodecFactory) []format {
	var formats []format
	for _, info := range codecs.SupportedMediaTypes() {
		for _, s := range []runtime.Serializer{info.Serializer, info.PrettySerializer} {
			if s == nil {
				continue
			}
			formats = append(formats, format{
				negotiated:  s,
				encoder:     codecs.EncoderForVersion(s, groupVersion),
				contentType: []string{fmt.Sprintf("%s;g=%s;v=%s;as=APIGroupDiscoveryList", info.MediaType, groupVersion.Group, groupVersion.Version)},
			})
		}
	}
	return formats
}

func (s *Server) formatOf(negotiated runtime.Serializer) int {
	return slices.IndexFunc(s.formats, func(f format) bool { return f.negotiated == negotiated })
}

func (f *format) encode(groups []apidiscoveryv2.APIGroupDiscovery) ([]byte, error) {
	var data bytes.Buffer
	// The encoder sets the type of what it encodes: each gets a list of its own.
	if err := f.encoder.Encode(&apidiscoveryv2.APIGroupDiscoveryList{Items: groups}, &data); err != nil {
		return nil, fmt.Errorf("encoding the merged document as %s: %w", f.contentType[0], err)
	}
	return data.Bytes(), nil
}
