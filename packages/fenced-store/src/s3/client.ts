import type {
  AbortMultipartUploadCommand,
  AbortMultipartUploadCommandOutput,
  CompleteMultipartUploadCommand,
  CompleteMultipartUploadCommandOutput,
  CreateMultipartUploadCommand,
  CreateMultipartUploadCommandOutput,
  DeleteObjectCommand,
  DeleteObjectCommandOutput,
  GetObjectAclCommand,
  GetObjectAclCommandOutput,
  GetObjectCommand,
  GetObjectCommandOutput,
  GetObjectTaggingCommand,
  GetObjectTaggingCommandOutput,
  HeadObjectCommand,
  HeadObjectCommandOutput,
  ListObjectsV2Command,
  ListObjectsV2CommandOutput,
  PutObjectCommand,
  PutObjectCommandOutput,
  UploadPartCommand,
  UploadPartCommandOutput,
  UploadPartCopyCommand,
  UploadPartCopyCommandOutput,
} from '@aws-sdk/client-s3';

interface CallOptions {
  readonly abortSignal: AbortSignal;
}

/** The calls of an `S3Client` that are used. */
export interface S3Calls {
  send(command: HeadObjectCommand, options: CallOptions): Promise<HeadObjectCommandOutput>;
  send(command: GetObjectCommand, options: CallOptions): Promise<GetObjectCommandOutput>;
  send(command: GetObjectAclCommand, options: CallOptions): Promise<GetObjectAclCommandOutput>;
  send(command: PutObjectCommand, options: CallOptions): Promise<PutObjectCommandOutput>;
  send(command: DeleteObjectCommand, options: CallOptions): Promise<DeleteObjectCommandOutput>;
  send(command: ListObjectsV2Command, options: CallOptions): Promise<ListObjectsV2CommandOutput>;
  send(
    command: GetObjectTaggingCommand,
    options: CallOptions,
  ): Promise<GetObjectTaggingCommandOutput>;
  send(
    command: CreateMultipartUploadCommand,
    options: CallOptions,
  ): Promise<CreateMultipartUploadCommandOutput>;
  send(command: UploadPartCommand, options: CallOptions): Promise<UploadPartCommandOutput>;
  send(command: UploadPartCopyCommand, options: CallOptions): Promise<UploadPartCopyCommandOutput>;
  send(
    command: CompleteMultipartUploadCommand,
    options: CallOptions,
  ): Promise<CompleteMultipartUploadCommandOutput>;
  send(
    command: AbortMultipartUploadCommand,
    options: CallOptions,
  ): Promise<AbortMultipartUploadCommandOutput>;
}
