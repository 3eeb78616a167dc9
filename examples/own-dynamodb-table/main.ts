// Sets a price in a DynamoDB table, under a lock. One conditional request compares and writes.
import {
  ConditionalCheckFailedException,
  DynamoDBClient,
  UpdateItemCommand,
} from '@aws-sdk/client-dynamodb';
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';

const urls = (process.env.REDIS_URLS ?? 'redis://127.0.0.1:6379').split(',');
const clients = urls.map((url) => new Redis(url));
const redlock = new Redlock({
  nodes: clients.map((client, at) => ({ name: 'abcde'.charAt(at), client })),
});
const db = new DynamoDBClient({});
const [item = 'chair', cents = '900'] = process.argv.slice(2);

/** Writes unless a higher token was seen. An equal token passes: a holder may write twice. */
function write(token: bigint) {
  return db.send(
    new UpdateItemCommand({
      TableName: 'price',
      Key: { item: { S: item } },
      UpdateExpression: 'SET cents = :cents, fence = :token',
      ConditionExpression: 'attribute_not_exists(fence) OR fence <= :token',
      // DynamoDB's numbers have 38 digits, so no token loses any.
      ExpressionAttributeValues: { ':cents': { N: cents }, ':token': { N: `${token}` } },
    }),
  );
}

try {
  await redlock.using(`price/${item}`, { ttlMs: 5_000, waitMs: 60_000 }, async ({ token }) => {
    await write(token);
    console.log(`${item} ${cents} is written`);
  });
} catch (error) {
  if (!(error instanceof ConditionalCheckFailedException)) throw error;
  console.log(`${item} ${cents} is refused: a later holder wrote`);
} finally {
  await redlock.close();
  for (const client of clients) client.disconnect();
  db.destroy();
}
