// KafkaJS behind the common commands (tests/interop/README.md).
// KafkaJS has no manual assignment: `open` with `assign` joins a group of its own and seeks.

const readline = require('node:readline')
const { Kafka, AssignerProtocol, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const snappy = require('snappyjs')
const { ZstdCodec } = require('zstd-codec')

const WAIT_MS = 40000
const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// Codecs: KafkaJS brings gzip alone.

const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00])

function snappyExpand(buffer) {
  if (!buffer.subarray(0, 8).equals(XERIAL)) return Buffer.from(snappy.uncompress(buffer))
  const parts = []
  for (let at = 16; at < buffer.length; ) {
    const size = buffer.readUInt32BE(at)
    parts.push(Buffer.from(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size))))
    at += 4 + size
  }
  return Buffer.concat(parts)
}

CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async encoder => Buffer.from(snappy.compress(encoder.buffer)),
  decompress: async buffer => snappyExpand(buffer),
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})

function useZstd() {
  return new Promise(resolve =>
    ZstdCodec.run(zstd => {
      // Streaming: frames from other clients do not always say how big they become.
      const codec = new zstd.Streaming()
      CompressionCodecs[CompressionTypes.ZSTD] = () => ({
        compress: async encoder => Buffer.from(codec.compress(encoder.buffer)),
        decompress: async buffer => Buffer.from(codec.decompress(buffer)),
      })
      resolve()
    })
  )
}

// Range assignment under the name that every other client uses, so that KafkaJS can be in a group with them.

const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  async assign({ members, topics }) {
    const assigned = new Map(members.map(({ memberId }) => [memberId, {}]))
    for (const topic of topics) {
      const takers = members
        .filter(({ memberMetadata }) => AssignerProtocol.MemberMetadata.decode(memberMetadata).topics.includes(topic))
        .map(({ memberId }) => memberId)
        .sort()
      const partitions = cluster.findTopicPartitionMetadata(topic).map(each => each.partitionId)
      partitions.sort((a, b) => a - b)
      const share = Math.floor(partitions.length / takers.length)
      const extra = partitions.length % takers.length
      takers.forEach((member, index) => {
        const start = share * index + Math.min(index, extra)
        assigned.get(member)[topic] = partitions.slice(start, start + share + (index < extra ? 1 : 0))
      })
    }
    return [...assigned].map(([memberId, assignment]) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment, userData: Buffer.alloc(0) }),
    }))
  },
  protocol({ topics }) {
    const metadata = AssignerProtocol.MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) })
    return { name: 'range', metadata }
  },
})

const unpack = text => (text === null ? null : Buffer.from(text, 'base64'))
const pack = value => (value === null || value === undefined ? null : Buffer.from(value).toString('base64'))
const single = array => array[0]

function headersToSend(pairs) {
  const headers = {}
  for (const [name, value] of pairs) (headers[name] ??= []).push(unpack(value))
  return headers
}

function headersReceived(headers) {
  return Object.entries(headers ?? {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map(each => [name, pack(each)])
  )
}

// One open consumer and what it has received.
class Open {
  constructor(consumer, starts) {
    this.consumer = consumer
    this.starts = starts // "topic/partition" to first offset wanted, or null for a group
    this.arrived = []
    this.partitions = []
    this.wake = () => {}
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      this.partitions = Object.entries(payload.memberAssignment).flatMap(([topic, ids]) => ids.map(id => [topic, id]))
    })
    consumer.on(consumer.events.REBALANCING, () => (this.partitions = []))
  }

  keep(topic, partition, messages) {
    const place = `${topic}/${partition}`
    for (const each of messages) {
      if (this.starts !== null) {
        // After a rebalance the group would begin anew: what was seen is passed over.
        if (Number(each.offset) < (this.starts.get(place) ?? Infinity)) continue
        this.starts.set(place, Number(each.offset) + 1)
      }
      this.arrived.push({
        topic,
        p: partition,
        o: Number(each.offset),
        t: Number(each.timestamp),
        k: pack(each.key),
        v: pack(each.value),
        h: headersReceived(each.headers),
      })
    }
    this.wake()
  }

  async take(count, timeoutMs) {
    const deadline = Date.now() + timeoutMs
    while (this.arrived.length < count && Date.now() < deadline) {
      await new Promise(resolve => {
        const timer = setTimeout(resolve, deadline - Date.now())
        this.wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    return this.arrived.splice(0, count)
  }
}

class Client {
  constructor(bootstrap) {
    const retry = { initialRetryTime: 100, maxRetryTime: 1000, retries: 12 }
    this.kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry })
    this.producers = new Map()
    this.transactional = new Map()
    this.consumers = new Map()
    this.lazyAdmin = null
  }

  async admin() {
    if (this.lazyAdmin === null) {
      this.lazyAdmin = this.kafka.admin()
      await this.lazyAdmin.connect()
    }
    return this.lazyAdmin
  }

  // Producing

  async produce({ topic, records, compression = 'none', acks = 'all', idempotent = false }) {
    return this.sendWith(await this.plainProducer(idempotent), { topic, records, compression, acks })
  }

  async sendWith(sender, { topic, records, compression = 'none', acks = 'all' }) {
    const messages = records.map(each => ({
      key: unpack(each.k),
      value: unpack(each.v),
      headers: headersToSend(each.h ?? []),
      ...('p' in each && { partition: each.p }),
      ...('t' in each && { timestamp: String(each.t) }),
    }))
    const sent = await sender.send({
      topic,
      messages,
      compression: TYPES[compression],
      acks: acks === 'all' ? -1 : Number(acks),
    })
    const next = new Map(sent.map(each => [each.partition, Number(each.baseOffset)]))
    const offsets = records.map(each => {
      const partition = 'p' in each ? each.p : single(sent).partition
      if (!next.has(partition)) return [-1, -1]
      const offset = next.get(partition)
      next.set(partition, offset + 1)
      return [partition, offset]
    })
    return { offsets }
  }

  async plainProducer(idempotent) {
    if (!this.producers.has(idempotent)) {
      const producer = this.kafka.producer({ idempotent })
      await producer.connect()
      this.producers.set(idempotent, producer)
    }
    return this.producers.get(idempotent)
  }

  // Transactions: KafkaJS makes a new object for each, `producer.transaction()`.

  async producer({ id, transactional_id: transactionalId, timeout_ms: transactionTimeout = 60000 }) {
    const producer = this.kafka.producer({ transactionalId, transactionTimeout, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    this.transactional.set(id, { producer, transaction: null })
    return {}
  }

  async begin({ id }) {
    const held = this.transactional.get(id)
    held.transaction = await held.producer.transaction()
    return {}
  }

  async send({ id, topic, records }) {
    return this.sendWith(this.transactional.get(id).transaction, { topic, records })
  }

  async end({ id, commit }) {
    const { transaction } = this.transactional.get(id)
    await (commit ? transaction.commit() : transaction.abort())
    return {}
  }

  async close_producer({ id }) {
    await this.transactional.get(id).producer.disconnect()
    this.transactional.delete(id)
    return {}
  }

  async process({ id, transactional_id, group, source, target, count, commit }) {
    await this.producer({ id, transactional_id })
    await this.open({ id, topics: [source], group })
    try {
      const records = await this.take({ id, count, timeout_ms: WAIT_MS }).then(taken => taken.records)
      await this.begin({ id })
      await this.send({ id, topic: target, records: records.map(({ p, k, v }) => ({ p, k, v })) })
      const next = new Map(records.map(each => [each.p, each.o + 1]))
      const partitions = [...next].map(([partition, offset]) => ({ partition, offset: String(offset) }))
      const offsets = { consumerGroupId: group, topics: [{ topic: source, partitions }] }
      await this.transactional.get(id).transaction.sendOffsets(offsets)
      await this.end({ id, commit })
      return { records: records.length }
    } finally {
      await this.close({ id })
    }
  }

  // Consuming

  async open(command) {
    const { id, assign, topics, group, reset = 'earliest', session_timeout_ms: sessionTimeout = 30000 } = command
    const starts = assign ? await this.resolve(assign) : null
    const consumer = this.kafka.consumer({
      groupId: group ?? `none-${id}-${process.pid}-${Date.now()}`,
      partitionAssigners: [range],
      sessionTimeout,
      heartbeatInterval: Math.min(250, Math.floor(sessionTimeout / 4)),
      rebalanceTimeout: 30000,
      maxWaitTimeInMs: command.fetch_wait_ms ?? 500,
      minBytes: command.fetch_min_bytes ?? 1,
      maxBytesPerPartition: command.max_partition_bytes ?? 10000000,
      readUncommitted: command.isolation === 'read_uncommitted',
    })
    const opened = new Open(consumer, starts)
    await consumer.connect()
    const names = assign ? [...new Set(assign.map(single))] : topics
    await consumer.subscribe({ topics: names, fromBeginning: assign ? true : reset === 'earliest' })
    await consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => opened.keep(batch.topic, batch.partition, batch.messages),
    })
    for (const [topic, partition] of assign ?? [])
      consumer.seek({ topic, partition, offset: String(starts.get(`${topic}/${partition}`)) })
    this.consumers.set(id, opened)
    return {}
  }

  async resolve(places) {
    const starts = new Map()
    for (const [topic, partition, at] of places) {
      if (typeof at === 'number') starts.set(`${topic}/${partition}`, at)
      else starts.set(`${topic}/${partition}`, single((await this.offsets({ topic, partitions: [partition], at: at.timestamp ?? at })).offsets))
    }
    return starts
  }

  async take({ id, count, timeout_ms: timeoutMs }) {
    return { records: await this.consumers.get(id).take(count, timeoutMs) }
  }

  async assignment({ id }) {
    return { partitions: this.consumers.get(id).partitions }
  }

  async pause({ id, partitions }) {
    this.consumers.get(id).consumer.pause(partitions.map(([topic, partition]) => ({ topic, partitions: [partition] })))
    return {}
  }

  async resume({ id, partitions }) {
    this.consumers.get(id).consumer.resume(partitions.map(([topic, partition]) => ({ topic, partitions: [partition] })))
    return {}
  }

  async commit({ id, offsets }) {
    const wanted = offsets.map(([topic, partition, offset]) => ({ topic, partition, offset: String(offset) }))
    await this.consumers.get(id).consumer.commitOffsets(wanted)
    return {}
  }

  async close({ id }) {
    await this.consumers.get(id).consumer.disconnect()
    this.consumers.delete(id)
    return {}
  }

  // Asking

  async metadata() {
    const admin = await this.admin()
    const { topics } = await admin.fetchTopicMetadata()
    const { brokers } = await admin.describeCluster()
    return { brokers: brokers.length, topics: Object.fromEntries(topics.map(each => [each.name, each.partitions.length])) }
  }

  async offsets({ topic, partitions, at }) {
    const admin = await this.admin()
    const asked = typeof at === 'number' ? admin.fetchTopicOffsetsByTimestamp(topic, at) : admin.fetchTopicOffsets(topic)
    const found = new Map((await asked).map(each => [each.partition, each]))
    const field = { earliest: 'low', latest: 'high' }[at] ?? 'offset'
    return { offsets: partitions.map(each => Number(found.get(each)[field])) }
  }

  async committed({ group, topic, partitions }) {
    const found = await (await this.admin()).fetchOffsets({ groupId: group, topics: [topic] })
    const offsets = new Map(single(found).partitions.map(each => [each.partition, Number(each.offset)]))
    return { offsets: partitions.map(each => offsets.get(each) ?? -1) }
  }

  // Administering

  async create_topic({ topic, partitions, configs = {} }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const topics = [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }]
    await (await this.admin()).createTopics({ topics, waitForLeaders: true, timeout: WAIT_MS })
    return {}
  }

  async delete_topic({ topic }) {
    await (await this.admin()).deleteTopics({ topics: [topic], timeout: WAIT_MS })
    return {}
  }

  async create_partitions({ topic, count }) {
    await (await this.admin()).createPartitions({ topicPartitions: [{ topic, count }] })
    return {}
  }

  async delete_records({ topic, partition, before }) {
    const admin = await this.admin()
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    return { low_watermark: single((await this.offsets({ topic, partitions: [partition], at: 'earliest' })).offsets) }
  }

  async describe_config({ topic }) {
    const admin = await this.admin()
    const { resources } = await admin.describeConfigs({ resources: [{ type: 2, name: topic }], includeSynonyms: false })
    return { configs: Object.fromEntries(single(resources).configEntries.map(each => [each.configName, each.configValue])) }
  }

  // The old AlterConfigs: what is not named goes back to its default.
  async alter_config({ topic, set }) {
    const configEntries = Object.entries(set).map(([name, value]) => ({ name, value }))
    await (await this.admin()).alterConfigs({ resources: [{ type: 2, name: topic, configEntries }] })
    return {}
  }

  async groups() {
    const { groups } = await (await this.admin()).listGroups()
    return { groups: groups.map(each => each.groupId) }
  }

  async describe_group({ group }) {
    const found = single((await (await this.admin()).describeGroups([group])).groups)
    const members = found.members.map(({ memberAssignment }) => {
      const { assignment } = AssignerProtocol.MemberAssignment.decode(memberAssignment) ?? { assignment: {} }
      return Object.entries(assignment).flatMap(([topic, ids]) => ids.map(id => [topic, id]))
    })
    return { state: found.state, assignor: found.protocol, members }
  }

  async delete_group({ group }) {
    await (await this.admin()).deleteGroups([group])
    return {}
  }

  async alter_offsets({ group, offsets }) {
    const topic = single(single(offsets))
    const partitions = offsets.map(([, partition, offset]) => ({ partition, offset: String(offset) }))
    await (await this.admin()).setOffsets({ groupId: group, topic, partitions })
    return {}
  }
}

function failure(error) {
  // The cause carries Kafka's code: at the error itself, at what was retried, or at the first of several.
  const seen = [error, error.originalError, error.cause, error.errors?.[0], error.groups?.[0]?.error].filter(Boolean)
  const codes = seen.map(each => each.code ?? each.errorCode).filter(code => typeof code === 'number')
  return { error: error.name, message: error.message, code: codes[0] ?? null }
}

const say = answer => process.stdout.write(JSON.stringify(answer) + '\n')

async function main() {
  await useZstd()
  const client = new Client(JSON.parse(process.argv[2]).bootstrap)
  say({ ok: { version: `KafkaJS ${require('kafkajs/package.json').version}` } })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    try {
      say({ ok: await client[command.op](command) })
    } catch (error) {
      say(failure(error))
    }
  }
  process.exit(0)
}

main()
