import lock = require('@fenced/lock');

import { Elector } from '@fenced/lock/election';
import { FencedS3 } from '@fenced/store/s3';

const error: lock.LockError = new lock.LockArgumentError('wrong');
export = { error, Elector, FencedS3 };
