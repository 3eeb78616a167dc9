# A bucket for FencedS3, and the least policy for the services that write to it.

variable "bucket" {
  type        = string
  description = "Name of the bucket."
}

resource "aws_s3_bucket" "documents" {
  bucket = var.bucket
}

resource "aws_s3_bucket_public_access_block" "documents" {
  bucket                  = aws_s3_bucket.documents.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# Parts of uploads whose writer died.
resource "aws_s3_bucket_lifecycle_configuration" "documents" {
  bucket = aws_s3_bucket.documents.id
  rule {
    id     = "abandoned-uploads"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

# Refuses writes without a condition, by whomever, and deletions, which would remove the ratchet.
resource "aws_s3_bucket_policy" "documents" {
  bucket = aws_s3_bucket.documents.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "WritesCarryConditions"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:PutObject"
        Resource  = "${aws_s3_bucket.documents.arn}/*"
        Condition = {
          Null = { "s3:if-match" = "true", "s3:if-none-match" = "true" }
          Bool = { "s3:ObjectCreationOperation" = "true" }
        }
      },
      {
        Sid         = "RatchetsStay"
        Effect      = "Deny"
        Principal   = "*"
        Action      = ["s3:DeleteObject", "s3:DeleteObjectVersion"]
        NotResource = "${aws_s3_bucket.documents.arn}/.fenced-probe/*"
      },
    ]
  })
}

# Attach it to the role of each service that writes.
resource "aws_iam_policy" "writer" {
  name = "${var.bucket}-fenced-writer"
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "List"
        Effect   = "Allow"
        Action   = ["s3:ListBucket"]
        Resource = aws_s3_bucket.documents.arn
      },
      {
        Sid    = "ReadAndWrite"
        Effect = "Allow"
        Action = [
          "s3:AbortMultipartUpload",
          "s3:GetObject",
          "s3:GetObjectAcl",
          "s3:GetObjectTagging",
          "s3:PutObject",
          "s3:PutObjectAcl",
          "s3:PutObjectTagging",
        ]
        Resource = "${aws_s3_bucket.documents.arn}/*"
      },
      {
        Sid      = "Probe"
        Effect   = "Allow"
        Action   = ["s3:DeleteObject"]
        Resource = "${aws_s3_bucket.documents.arn}/.fenced-probe/*"
      },
    ]
  })
}

output "writer_policy_arn" {
  value = aws_iam_policy.writer.arn
}
