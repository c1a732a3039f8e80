package main

import (
	"errors"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// records out and in.
var records = map[string]feature{
	"produce.records":     produceRecords,
	"produce.codecs":      produceCodecs,
	"produce.idempotent":  produceIdempotent,
	"produce.acks":        produceAcks,
	"produce.large":       produceLarge,
	"produce.refuse":      produceRefuse,
	"produce.auto_create": produceAutoCreate,
	"consume.assign":      consumeAssign,
	"consume.seek":        consumeSeek,
	"consume.reset":       consumeReset,
	"offsets.list":        offsetsList,
	"load":                load,
}

func produceRecords(s *scene) any {
	topic := s.topic("records", 1)
	keys := [][]byte{nil, {}, []byte("k")}
	contents := [][]byte{nil, {}, []byte("v"), []byte("grüße")}
	headers := [][]kgo.RecordHeader{
		nil,
		{{Key: "one", Value: []byte("1")}, {Key: "one", Value: []byte("2")}},
		{{Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}, {Key: "ключ", Value: []byte("x")}},
	}
	var wanted []*kgo.Record
	for _, key := range keys {
		for _, value := range contents {
			for _, header := range headers {
				at := time.UnixMilli(firstTime + int64(len(wanted)*7))
				wanted = append(wanted, &kgo.Record{
					Topic: topic, Key: key, Value: value, Headers: header, Timestamp: at,
				})
			}
		}
	}
	s.send(wanted)
	found := s.read(topic, len(wanted), 1, kgo.NewOffset().AtStart())
	for i, one := range found {
		equal(one.Key, wanted[i].Key, "key")
		equal(one.Value, wanted[i].Value, "value")
		equal(len(one.Headers), len(wanted[i].Headers), "headers")
		for j, header := range one.Headers {
			equal(header, wanted[i].Headers[j], "header")
		}
		equal(one.Timestamp.UnixMilli(), wanted[i].Timestamp.UnixMilli(), "time")
		equal(one.Offset, int64(i), "offset")
		equal(one.LeaderEpoch, int32(0), "leader epoch")
	}
	return len(found)
}

func produceCodecs(s *scene) any {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		topic := s.topic("codec", 1)
		wanted := numbers(200)
		for i := range wanted {
			wanted[i] = strings.Repeat(wanted[i], 100)
		}
		s.write(topic, 0, wanted, kgo.ProducerBatchCompression(codec))
		found := s.read(topic, len(wanted), 1, kgo.NewOffset().AtStart())
		equal(values(found), wanted, name)
		kinds := map[string]uint8{"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
		equal(found[0].Attrs.CompressionType(), kinds[name], "codec of the batch")
	}
	return len(codecs)
}

func produceIdempotent(s *scene) any {
	topic := s.topic("idempotent", 1)
	offsets := s.write(topic, 0, numbers(3000), kgo.ProducerBatchMaxBytes(2000))
	for i, offset := range offsets {
		equal(offset, int64(i), "offset")
	}
	equal(values(s.read(topic, 3000, 1, kgo.NewOffset().AtStart())), numbers(3000), "values")
	return len(offsets)
}

func produceAcks(s *scene) any {
	for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		topic := s.topic("acks", 1)
		s.write(topic, 0, numbers(3), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
		equal(values(s.read(topic, 3, 1, kgo.NewOffset().AtStart())), numbers(3), "values")
	}
	return 3
}

func produceLarge(s *scene) any {
	topic := s.topic("large", 1)
	wanted := make([]string, 5)
	for i := range wanted {
		wanted[i] = strings.Repeat(strconv.Itoa(i), 990_000)
	}
	s.write(topic, 0, wanted)
	found := values(s.read(topic, 5, 1, kgo.NewOffset().AtStart()))
	for i := range wanted {
		holds(found[i] == wanted[i], "a record came back as it was")
	}
	return len(found)
}

func produceRefuse(s *scene) any {
	topic := s.topic("refuse", 1, "max.message.bytes", "1000")
	client := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer client.Close()
	large := client.ProduceSync(s.ctx, &kgo.Record{Topic: topic, Value: make([]byte, 5000)}).FirstErr()
	holds(errors.Is(large, kerr.MessageTooLarge), "too large, not "+text(large))
	missing := client.ProduceSync(s.ctx, &kgo.Record{Topic: topic, Partition: 7}).FirstErr()
	holds(missing != nil, "no partition 7")
	good := &kgo.Record{Topic: topic, Value: []byte("fits")}
	check(client.ProduceSync(s.ctx, good).FirstErr())
	return []any{text(large), good.Offset}
}

func produceAutoCreate(s *scene) any {
	topic := s.name("auto")
	s.write(topic, 0, []string{"first"}, kgo.AllowAutoTopicCreation())
	return values(s.read(topic, 1, 1, kgo.NewOffset().AtStart()))
}

func consumeAssign(s *scene) any {
	topic := s.topic("assign", 2)
	for p := range int32(2) {
		s.write(topic, p, numbers(10))
	}
	for _, level := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
		found := s.read(topic, 20, 2, kgo.NewOffset().AtStart(), kgo.FetchIsolationLevel(level))
		equal(len(found), 20, "records")
	}
	client := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().At(4), 1: kgo.NewOffset().At(0)},
	}))
	defer client.Close()
	client.PauseFetchPartitions(map[string][]int32{topic: {1}})
	for i, one := range s.take(client, 6) {
		equal([]int64{int64(one.Partition), one.Offset}, []int64{0, int64(i + 4)}, "record")
	}
	client.ResumeFetchPartitions(map[string][]int32{topic: {1}})
	for i, one := range s.take(client, 10) {
		equal([]int64{int64(one.Partition), one.Offset}, []int64{1, int64(i)}, "record")
	}
	return 20
}

func (s *scene) writeAt(topic string, count int) {
	made := make([]*kgo.Record, count)
	for i := range made {
		at := time.UnixMilli(firstTime + int64(1000*i))
		made[i] = &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i)), Timestamp: at}
	}
	s.send(made)
}

func consumeSeek(s *scene) any {
	topic := s.topic("seek", 1)
	s.writeAt(topic, 10)
	seen := map[string]int64{}
	for name, at := range map[string]kgo.Offset{
		"start":    kgo.NewOffset().AtStart(),
		"offset":   kgo.NewOffset().At(7),
		"time":     kgo.NewOffset().AfterMilli(firstTime + 3500),
		"relative": kgo.NewOffset().AtEnd().Relative(-2),
	} {
		seen[name] = s.read(topic, 1, 1, at)[0].Offset
	}
	equal(seen, map[string]int64{"start": 0, "offset": 7, "time": 4, "relative": 8}, "offsets")
	return seen
}

func consumeReset(s *scene) any {
	topic := s.topic("reset", 1)
	s.write(topic, 0, numbers(3))
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	found := s.read(topic, 1, 1, kgo.NewOffset().At(100), start)
	equal(found[0].Offset, int64(0), "the first one")
	client := s.client(kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(100)}}))
	defer client.Close()
	err := client.PollFetches(s.ctx).Err()
	holds(errors.Is(err, kerr.OffsetOutOfRange), "out of range, not "+text(err))
	return text(errors.Unwrap(err))
}

func offsetsList(s *scene) any {
	topic := s.topic("offsets", 1)
	s.writeAt(topic, 10)
	seen := map[string]any{}
	ask := func(name string, found kadm.ListedOffsets, err error) {
		check(err)
		one, there := found.Lookup(topic, 0)
		holds(there, name)
		seen[name] = []any{one.Offset, one.Timestamp, one.LeaderEpoch, text(one.Err)}
	}
	found, err := s.admin.ListStartOffsets(s.ctx, topic)
	ask("start", found, err)
	found, err = s.admin.ListEndOffsets(s.ctx, topic)
	ask("end", found, err)
	found, err = s.admin.ListCommittedOffsets(s.ctx, topic)
	ask("committed", found, err)
	found, err = s.admin.ListMaxTimestampOffsets(s.ctx, topic)
	ask("newest", found, err)
	found, err = s.admin.ListLocalLogStartOffsets(s.ctx, topic)
	ask("local", found, err)
	found, err = s.admin.ListOffsetsAfterMilli(s.ctx, firstTime+3500, topic)
	ask("time", found, err)
	found, err = s.admin.ListOffsetsAfterMilli(s.ctx, firstTime*2, topic)
	ask("late", found, err)
	equal(seen["start"].([]any)[0], int64(0), "start")
	equal(seen["end"].([]any)[0], int64(10), "end")
	equal(seen["newest"].([]any)[0], int64(9), "newest")
	equal(seen["time"].([]any)[0], int64(4), "time")
	epoch := int32(0)
	request := kadm.OffsetForLeaderEpochRequest{}
	request.Add(topic, 0, epoch)
	ends, err := s.admin.OffsetForLeaderEpoch(s.ctx, request)
	check(err)
	seen["epoch end"] = []any{ends[topic][0].EndOffset, text(ends[topic][0].Err)}
	return seen
}

func load(s *scene) any {
	topic := s.topic("load", 3)
	const count = 20_000
	made := make([]*kgo.Record, count)
	for i := range made {
		value := []byte(strings.Repeat("0", 95) + strconv.Itoa(10_000+i))
		made[i] = &kgo.Record{Topic: topic, Partition: int32(i % 3), Value: value}
	}
	s.send(made)
	found := values(s.read(topic, count, 3, kgo.NewOffset().AtStart()))
	sort.Strings(found)
	for i, one := range found {
		equal(one[95:], strconv.Itoa(10_000+i), "value")
	}
	return count
}
