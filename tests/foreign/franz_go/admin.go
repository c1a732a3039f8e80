package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// administration is kadm, and requests made by hand where it has none.
var administration = map[string]feature{
	"cluster.describe": clusterDescribe,
	"cluster.versions": clusterVersions,
	"cluster.log_dirs": clusterLogDirs,
	"cluster.elect":    clusterElect,
	"topics.create":    topicsCreate,
	"topics.refuse":    topicsRefuse,
	"topics.list":      topicsList,
	"topics.describe":  topicsDescribe,
	"topics.grow":      topicsGrow,
	"topics.delete":    topicsDelete,
	"configs.describe": configsDescribe,
	"configs.alter":    configsAlter,
	"configs.broker":   configsBroker,
	"records.delete":   recordsDelete,
}

func clusterDescribe(s *scene) any {
	found, err := s.admin.BrokerMetadata(s.ctx)
	check(err)
	equal(len(found.Brokers), s.brokers, "brokers")
	holds(slices.Contains(found.Brokers.NodeIDs(), found.Controller), "a controller among them")
	holds(found.Cluster != "", "a cluster id")
	request := kmsg.NewPtrDescribeClusterRequest()
	request.IncludeClusterAuthorizedOperations = true
	answer, err := request.RequestWith(s.ctx, s.client())
	check(err)
	equal(answer.ClusterID, found.Cluster, "cluster id")
	return answer.ClusterAuthorizedOperations
}

func clusterVersions(s *scene) any {
	found, err := s.admin.ApiVersions(s.ctx)
	check(err)
	equal(len(found), s.brokers, "brokers")
	seen := map[string]string{}
	for _, one := range found {
		check(one.Err)
		one.EachKeySorted(func(key, low, high int16) {
			seen[kmsg.NameForKey(key)] = fmt.Sprintf("%d-%d", low, high)
		})
	}
	return seen
}

func clusterLogDirs(s *scene) any {
	topic := s.topic("dirs", 2)
	s.write(topic, 0, numbers(100))
	found, err := s.admin.DescribeAllLogDirs(s.ctx, kadm.TopicsSet{topic: {0: {}, 1: {}}})
	check(err)
	equal(len(found), s.brokers, "brokers")
	parts, full := 0, 0
	found.Each(func(folder kadm.DescribedLogDir) {
		check(folder.Err)
		holds(folder.TotalBytes > 0 && folder.UsableBytes > 0, "space on the disk")
		for _, one := range folder.Topics[topic] {
			parts++
			equal(one.OffsetLag, int64(0), "lag")
			holds(!one.IsFuture, "not a future one")
			if one.Size > 100 {
				full++
			}
		}
	})
	equal([]int{parts, full}, []int{2 * int(s.replicas()), int(s.replicas())}, "replicas, with data")
	return nil
}

func clusterElect(s *scene) any {
	topic := s.topic("elect", 2)
	asked := kadm.TopicsSet{topic: {0: {}, 7: {}}}
	found, err := s.admin.ElectLeaders(s.ctx, kadm.ElectPreferredReplica, asked)
	check(err)
	seen := map[int32][]string{}
	for partition, one := range found[topic] {
		seen[partition] = []string{text(one.Err), one.ErrMessage}
	}
	_, err = s.admin.ElectLeaders(s.ctx, kadm.ElectPreferredReplica, nil)
	check(err)
	return seen
}

func topicsCreate(s *scene) any {
	plain, tried, standard := s.name("plain"), s.name("tried"), s.name("standard")
	retention := "123456"
	configs := map[string]*string{"retention.ms": &retention}
	made, err := s.admin.CreateTopic(s.ctx, 3, s.replicas(), configs, plain)
	check(err)
	equal([]int{int(made.NumPartitions), int(made.ReplicationFactor)}, []int{3, int(s.replicas())}, "counts")
	set := made.Configs["retention.ms"]
	equal(set.MaybeValue(), retention, "retention.ms")
	holds(made.ID != kadm.TopicID{}, "an id")
	_, err = s.admin.ValidateCreateTopics(s.ctx, 1, 1, nil, tried)
	check(err)
	_, err = s.admin.CreateTopic(s.ctx, -1, -1, nil, standard)
	check(err)
	until("topics", func() bool { return s.count(plain) == 3 && s.count(standard) > 0 })
	equal(s.count(tried), -1, "what was only validated")
	return []any{s.count(standard), slices.Sorted(maps.Keys(made.Configs))}
}

func topicsRefuse(s *scene) any {
	taken := s.topic("taken", 1)
	soon := "soon"
	seen := map[string]string{}
	try := func(name, topic string, partitions int32, replicas int16, configs map[string]*string) {
		answers, err := s.admin.CreateTopics(s.ctx, partitions, replicas, configs, topic)
		check(err)
		holds(answers[topic].Err != nil, "refused: "+name)
		seen[name] = text(answers[topic].Err) + ": " + answers[topic].ErrMessage
	}
	try("twice", taken, 1, 1, nil)
	try("name", "no/such", 1, 1, nil)
	try("partitions", "foreign-none", 0, 1, nil)
	try("config", "foreign-config", 1, 1, map[string]*string{"no.such": &soon})
	try("value", "foreign-value", 1, 1, map[string]*string{"retention.ms": &soon})
	try("null", "foreign-null", 1, 1, map[string]*string{"retention.ms": nil})
	return seen
}

func topicsList(s *scene) any {
	topic := s.topic("list", 2)
	found, err := s.admin.ListTopics(s.ctx)
	check(err)
	holds(found.Has(topic), "the topic among all")
	some, err := s.admin.ListTopics(s.ctx, topic, "foreign-missing")
	check(err)
	return []string{text(some[topic].Err), text(some["foreign-missing"].Err)}
}

func topicsDescribe(s *scene) any {
	topic := s.topic("describe", 3)
	found, err := s.admin.Metadata(s.ctx, topic)
	check(err)
	detail := found.Topics[topic]
	equal(len(detail.Partitions), 3, "partitions")
	for _, one := range detail.Partitions.Sorted() {
		equal([]int{len(one.Replicas), len(one.ISR)}, []int{int(s.replicas()), int(s.replicas())}, "replicas")
		holds(slices.Contains(one.Replicas, one.Leader), "a leader among the replicas")
		equal(one.LeaderEpoch, int32(0), "epoch")
		equal(len(one.OfflineReplicas), 0, "offline")
	}
	request := kmsg.NewPtrDescribeTopicPartitionsRequest()
	named := kmsg.NewDescribeTopicPartitionsRequestTopic()
	named.Topic = topic
	request.Topics = append(request.Topics, named)
	request.ResponsePartitionLimit = 2
	client := s.client()
	defer client.Close()
	answer, err := request.RequestWith(s.ctx, client)
	check(err)
	equal(len(answer.Topics[0].Partitions), 2, "partitions of the first page")
	holds(answer.NextCursor != nil && answer.NextCursor.Partition == 2, "a second page")
	return answer.Topics[0].AuthorizedOperations
}

func topicsGrow(s *scene) any {
	topic := s.topic("grow", 2)
	_, err := s.admin.UpdatePartitions(s.ctx, 4, topic)
	check(err)
	until("four partitions", func() bool { return s.count(topic) == 4 })
	down, err := s.admin.UpdatePartitions(s.ctx, 3, topic)
	check(err)
	missing, err := s.admin.UpdatePartitions(s.ctx, 3, "foreign-missing")
	check(err)
	s.write(topic, 3, numbers(1))
	equal(len(s.read(topic, 1, 4, kgo.NewOffset().AtStart())), 1, "records")
	return []string{
		text(down[topic].Err), down[topic].ErrMessage, text(missing["foreign-missing"].Err),
	}
}

func topicsDelete(s *scene) any {
	topic := s.topic("delete", 1)
	_, err := s.admin.DeleteTopic(s.ctx, topic)
	check(err)
	until("the topic is gone", func() bool { return s.count(topic) == -1 })
	again, err := s.admin.DeleteTopics(s.ctx, topic)
	check(err)
	return []string{text(again[topic].Err), again[topic].ErrMessage}
}

func told(configs []kadm.Config, names ...string) map[string]any {
	seen := map[string]any{}
	for _, one := range configs {
		if slices.Contains(names, one.Key) {
			synonyms := []string{}
			for _, other := range one.Synonyms {
				synonyms = append(synonyms, fmt.Sprint(other.Key, other.Source))
			}
			seen[one.Key] = []any{one.MaybeValue(), one.Source.String(), one.Sensitive, synonyms}
		}
	}
	return seen
}

func configsDescribe(s *scene) any {
	topic := s.topic("configs", 1, "retention.ms", "5000", "cleanup.policy", "compact")
	found, err := s.admin.DescribeTopicConfigs(s.ctx, topic, "foreign-none")
	check(err)
	own, err := found.On(topic, nil)
	check(err)
	missing, _ := found.On("foreign-none", nil)
	brokers, err := s.admin.DescribeBrokerConfigs(s.ctx, s.node())
	check(err)
	return []any{
		told(own.Configs, "retention.ms", "cleanup.policy", "max.message.bytes", "flush.ms"),
		told(brokers[0].Configs, "num.io.threads", "message.max.bytes", "log.retention.hours"),
		text(missing.Err), missing.ErrMessage, len(own.Configs),
	}
}

func (s *scene) node() int32 {
	found, err := s.admin.ListBrokers(s.ctx)
	check(err)
	return found[0].NodeID
}

func (s *scene) value(topic, name string) string {
	found, err := s.admin.DescribeTopicConfigs(s.ctx, topic)
	check(err)
	for _, one := range found[0].Configs {
		if one.Key == name {
			return one.MaybeValue()
		}
	}
	return ""
}

func configsAlter(s *scene) any {
	topic := s.topic("alter", 1, "max.message.bytes", "2000")
	seen := map[string]string{}
	alter := func(label, where string, op kadm.IncrementalOp, name string, value *string) {
		answers, err := s.admin.AlterTopicConfigs(s.ctx, []kadm.AlterConfig{{Op: op, Name: name, Value: value}}, where)
		check(err)
		seen[label] = text(answers[0].Err) + ": " + answers[0].ErrMessage
	}
	alter("set", topic, kadm.SetConfig, "retention.ms", kadm.StringPtr("7000"))
	until("retention.ms set", func() bool { return s.value(topic, "retention.ms") == "7000" })
	alter("delete", topic, kadm.DeleteConfig, "max.message.bytes", nil)
	alter("append", topic, kadm.AppendConfig, "cleanup.policy", kadm.StringPtr("compact"))
	until("both policies", func() bool { return s.value(topic, "cleanup.policy") == "delete,compact" })
	equal(s.value(topic, "max.message.bytes"), "1048588", "the default again")
	alter("subtract", topic, kadm.SubtractConfig, "cleanup.policy", kadm.StringPtr("delete"))
	alter("value", topic, kadm.SetConfig, "retention.ms", kadm.StringPtr("soon"))
	alter("name", topic, kadm.SetConfig, "no.such", kadm.StringPtr("1"))
	alter("missing", "foreign-none", kadm.SetConfig, "retention.ms", kadm.StringPtr("1"))
	whole := []kadm.AlterConfig{{Name: "segment.bytes", Value: kadm.StringPtr("2000000")}}
	answers, err := s.admin.AlterTopicConfigsState(s.ctx, whole, topic)
	check(err)
	check(answers[0].Err)
	until("segment.bytes set", func() bool { return s.value(topic, "segment.bytes") == "2000000" })
	return seen
}

func configsBroker(s *scene) any {
	node := s.node()
	entry := func() []any {
		found, err := s.admin.DescribeBrokerConfigs(s.ctx, node)
		check(err)
		return told(found[0].Configs, "message.max.bytes")["message.max.bytes"].([]any)
	}
	alter := func(op kadm.IncrementalOp, value *string, brokers ...int32) {
		change := []kadm.AlterConfig{{Op: op, Name: "message.max.bytes", Value: value}}
		answers, err := s.admin.AlterBrokerConfigs(s.ctx, change, brokers...)
		check(err)
		check(answers[0].Err)
	}
	alter(kadm.SetConfig, kadm.StringPtr("1100000"))
	until("set for all", func() bool { return entry()[0] == "1100000" })
	alter(kadm.SetConfig, kadm.StringPtr("1200000"), node)
	until("set for one", func() bool { return entry()[0] == "1200000" })
	seen := entry()
	alter(kadm.DeleteConfig, nil, node)
	alter(kadm.DeleteConfig, nil)
	until("the default again", func() bool { return entry()[0] == "1048588" })
	return seen
}

func recordsDelete(s *scene) any {
	topic := s.topic("records", 1)
	s.write(topic, 0, numbers(10))
	seen := []any{}
	for _, offset := range []int64{4, 11, -1} {
		asked := kadm.Offsets{}
		asked.Add(kadm.Offset{Topic: topic, Partition: 0, At: offset})
		answers, err := s.admin.DeleteRecords(s.ctx, asked)
		check(err)
		one, _ := answers.Lookup(topic, 0)
		seen = append(seen, one.LowWatermark, text(one.Err))
		if offset == 4 {
			first := s.read(topic, 1, 1, kgo.NewOffset().AtStart())[0].Offset
			equal(first, int64(4), "the first record left")
		}
	}
	equal([]any{seen[0], seen[4]}, []any{int64(4), int64(10)}, "low watermarks")
	return seen
}
